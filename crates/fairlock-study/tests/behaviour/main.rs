//! The workloads on this machine and on simulated ones.

mod damaged;
mod every_lock;
mod inversion;
mod measured;
mod mmapstorm;
mod names;
mod own;
mod patterns;
mod pollers;
mod recordings;
mod simulated;
