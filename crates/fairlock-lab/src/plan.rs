//! Stand-in for the engine: the same shapes, made-up numbers.
#![allow(missing_docs)]

use crate::error::LabError;
use crate::row::Row;
use crate::workloads::dio::{DioForm, DioParams};
use crate::workloads::mix::{MixParams, Roles};

pub const KERNEL: &str = "kernel";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub cells: Vec<Cell>,
    pub pinned: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub workload: Workload,
    pub lock: String,
    pub repetitions: u32,
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    Mix(MixParams),
    Dio(DioParams),
}

impl Workload {
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Mix(_) => "mix",
            Workload::Dio(params) => params.form.name(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    pub index: usize,
    pub total: usize,
    pub cell: &'a Cell,
    pub repetition: u32,
}

pub trait Observer {
    fn started(&mut self, _step: &Step<'_>) {}
    fn finished(&mut self, _step: &Step<'_>) {}
    fn row(&mut self, _row: &Row) {}
    fn cancelled(&self) -> bool {
        false
    }
}

pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for cell in &plan.cells {
        for repetition in 0..cell.repetitions {
            if observer.cancelled() {
                return Ok(rows);
            }
            let step = Step {
                index: 0,
                total: 0,
                cell,
                repetition,
            };
            observer.started(&step);
            std::thread::sleep(std::time::Duration::from_millis(1));
            observer.finished(&step);
        }
        let params: Vec<(&str, f64)> = match &cell.workload {
            Workload::Mix(mix) => match mix.roles {
                Roles::Dedicated { readers, writers } => vec![
                    ("threads", f64::from(readers + writers)),
                    ("readers", f64::from(readers)),
                    ("writers", f64::from(writers)),
                ],
                Roles::Mixed {
                    threads,
                    read_percent,
                } => vec![
                    ("threads", f64::from(threads)),
                    ("read_percent", read_percent),
                ],
            },
            Workload::Dio(dio) => {
                let mut params = vec![
                    ("readers", f64::from(dio.readers)),
                    ("writers", f64::from(dio.writers)),
                ];
                if dio.form == DioForm::Sleep {
                    params.push(("read_hold_ns", dio.read_hold_ns as f64));
                    params.push(("write_hold_ns", dio.write_hold_ns as f64));
                } else {
                    params.push(("read_bytes", f64::from(dio.read_bytes)));
                    params.push(("write_bytes", 4096.0));
                }
                params
            }
        };
        let row = crate::example::row(cell.workload.name(), &cell.lock, &params);
        observer.row(&row);
        rows.push(row);
    }
    Ok(rows)
}
