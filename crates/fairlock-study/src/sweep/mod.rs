//! Sweeps: grids of cells that are too many for one sitting or one machine.
//!
//! A sweep is one or several studies cut into *tasks*: one seed of one cell on a simulated machine, or the cells with
//! real threads that take turns. A task is called by all that decides its result, so whoever runs it, wherever and
//! however often, the result is the same, and what is there already is never run again.
//!
//! * [`plan`]: which tasks there are, what they are called and about how long each takes.
//! * [`share`]: the part of them that one of several machines runs.
//! * [`results`]: a directory of results, one file for each task, whole or not there.
//! * [`run`]: runs tasks on the CPUs of this machine.
//! * [`merge`]: makes rows of results, the same that one run of all cells would have made.
//! * [`engine`]: has tasks run by what distributes work already: Slurm, HyperQueue, GNU parallel.
//!
//! A sweep's directory:
//!
//! ```text
//! plan.jsonl         the studies, the machines and all cells with the names of their tasks
//! results/NAME.json  what a task came to
//! failed/NAME.txt    why a task failed
//! slurm-1/ …         what was submitted to an engine: a script to edit, the jobs, their logs
//! rows.jsonl         the rows, for `fairlock report`
//! report.html        the page
//! ```
//!
//! Not for: choosing parameters by what came out, which is [`fit`](crate::fit).

pub mod engine;
pub mod merge;
pub mod plan;
pub mod results;
pub mod run;
pub mod share;
