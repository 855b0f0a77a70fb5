//! Stand-in for the engine: the same shapes, made-up numbers.
#![allow(missing_docs)]

use std::path::PathBuf;

use crate::row::Row;

#[derive(Debug, Clone, PartialEq)]
pub struct MixParams {
    pub readers: u32,
    pub writers: u32,
    pub mixed: u32,
    pub read_percent: f64,
    pub reader_section_pauses: u32,
    pub writer_section_pauses: u32,
    pub think_pauses: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DioForm {
    Kernel,
    Lock,
    Sleep,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DioParams {
    pub form: DioForm,
    pub readers: u32,
    pub writers: u32,
    pub read_bytes: u32,
    pub write_bytes: u32,
    pub read_hold_ns: u64,
    pub write_hold_ns: u64,
    pub dir: PathBuf,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    Mix(MixParams),
    Dio(DioParams),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub workload: Workload,
    pub lock: String,
    pub repetitions: u32,
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub cells: Vec<Cell>,
}

#[derive(Debug)]
pub struct LabError(pub String);

impl std::fmt::Display for LabError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub trait Observer {
    fn started(&mut self, cell: &Cell, repetition: u32);
    fn finished(&mut self, cell: &Cell, repetition: u32);
    fn row(&mut self, row: &Row);
    fn cancelled(&self) -> bool;
}

pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for cell in &plan.cells {
        for repetition in 0..cell.repetitions {
            if observer.cancelled() {
                return Ok(rows);
            }
            observer.started(cell, repetition);
            std::thread::sleep(std::time::Duration::from_millis(1));
            observer.finished(cell, repetition);
        }
        let (name, params): (_, Vec<(&str, f64)>) = match &cell.workload {
            Workload::Mix(mix) => (
                "mix",
                vec![
                    ("threads", f64::from(mix.readers + mix.writers + mix.mixed)),
                    ("readers", f64::from(mix.readers)),
                    ("writers", f64::from(mix.writers)),
                    ("mixed", f64::from(mix.mixed)),
                ],
            ),
            Workload::Dio(dio) => (
                match dio.form {
                    DioForm::Kernel => "dio-kernel",
                    DioForm::Lock => "dio-lock",
                    DioForm::Sleep => "dio-sleep",
                },
                vec![
                    ("threads", f64::from(dio.readers + dio.writers)),
                    ("readers", f64::from(dio.readers)),
                    ("writers", f64::from(dio.writers)),
                    ("read_bytes", f64::from(dio.read_bytes)),
                    ("write_bytes", f64::from(dio.write_bytes)),
                ],
            ),
        };
        let row = crate::example::row(name, &cell.lock, &params);
        observer.row(&row);
        rows.push(row);
    }
    Ok(rows)
}

pub fn remove_scratch_files() {}
