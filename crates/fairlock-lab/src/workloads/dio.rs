//! Stand-in.

use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DioForm {
    Kernel,
    Lock,
    Sleep,
}

impl DioForm {
    pub fn name(self) -> &'static str {
        match self {
            DioForm::Kernel => "dio-kernel",
            DioForm::Lock => "dio-lock",
            DioForm::Sleep => "dio-sleep",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DioParams {
    pub form: DioForm,
    pub writers: u32,
    pub readers: u32,
    pub read_bytes: u32,
    pub write_hold_ns: u64,
    pub read_hold_ns: u64,
    pub directory: PathBuf,
    pub rotate_bytes: u64,
}

impl Default for DioParams {
    fn default() -> DioParams {
        DioParams {
            form: DioForm::Sleep,
            writers: 1,
            readers: 1,
            read_bytes: 64 * 1024,
            write_hold_ns: 20_000,
            read_hold_ns: 300_000,
            directory: PathBuf::from("."),
            rotate_bytes: 1 << 30,
        }
    }
}

pub fn remove_scratch_files() {}
