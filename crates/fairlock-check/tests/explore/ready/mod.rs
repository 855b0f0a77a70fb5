//! Polls over each of the lists, in every schedule within stated bounds.
//!
//! * `world.rs`: polls, sources and what was reported, for programs over any list.
//! * `waits.rs`: every wait ends that should, and reports what it should.
//! * `comings_and_goings.rs`: registrations that change while others signal and wait.
//! * `gone.rs`: sources and polls that are dropped meanwhile, and freed.
//! * `frozen.rs`: a producer that stops for good, anywhere.
//! * `mistakes.rs`: what is wrong on purpose is found.

mod comings_and_goings;
mod frozen;
mod gone;
mod mistakes;
mod waits;
mod world;
