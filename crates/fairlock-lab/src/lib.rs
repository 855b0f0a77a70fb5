//! The lab: workloads that show what a lock does to readers and writers, and what measures them. Plans of many runs,
//! claims about them and reports are `fairlock-study`'s, the `fairlock` command is `fairlock-cli`'s.
//!
//! * [`world`]: what a workload may do to the machine it runs on.
//! * [`locks`]: the registry of locks under test; [`pollers`]: that of ready lists.
//! * [`workload`]: what a workload is; [`workloads`]: the workloads themselves, written once against [`world::World`].
//! * [`measure`]: recorders, and how repetitions become a [`Row`].
//! * [`machine`]: the one that this runs on; [`calibrate`]: measures it for the simulator.
//!
//! All that runs while something is measured is here, and this crate is optimized; what plans and presents is not.
//!
//! [`Row`]: fairlock_report::row::Row

pub mod calibrate;
pub mod error;
pub mod locks;
pub mod machine;
pub mod measure;
pub mod pollers;
pub mod workload;
pub mod workloads;
pub mod world;
