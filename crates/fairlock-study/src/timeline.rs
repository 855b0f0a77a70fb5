//! How a run on a simulated machine began, from what the simulator recorded of it.

use fairlock_report::timeline::{
    ACTIVITIES, MEASURING_BEGINS, NOTHING, SECTIONS, SLOTS, ThreadTimeline, Timeline,
};
use fairlock_sim::timed::{self, Activity, Happening};

use crate::plan::Cell;

/// More threads fit no picture: of more, the first and the last are kept.
const MOST_THREADS: usize = 32;
/// More arrows hide what they point at.
const MOST_WAKE_UPS: usize = 200;

/// How a cell on a simulated machine began.
pub fn beginning(cell: &Cell, recorded: &timed::Timeline) -> Timeline {
    let on = cell.on.as_ref();
    let length_ns = cell.timeline_ns().max(1);
    let names = cell.thread_names();
    let last_ones = names.len().max(MOST_THREADS) - MOST_THREADS / 2;
    let kept: Vec<usize> = (0..names.len())
        .filter(|&thread| thread < MOST_THREADS / 2 || thread >= last_ones)
        .collect();
    let place_of = |thread: u32| kept.binary_search(&(thread as usize)).ok();
    let mut activities = vec![Slots::new(length_ns); kept.len()];
    let mut sections = activities.clone();
    let mut wake_ups = Vec::new();
    let mut measured_from_ns = None;
    for span in recorded {
        if span.what == Happening::Mark(MEASURING_BEGINS) {
            measured_from_ns = Some(span.from_ns);
        }
        let Some(place) = place_of(span.thread) else { continue };
        match span.what {
            Happening::Activity(activity) => {
                let kind = match activity {
                    Activity::Runs => 0,
                    Activity::Spins => 1,
                    Activity::Sleeps => 2,
                    Activity::Ready => 3,
                };
                activities[place].add(kind, span.from_ns, span.to_ns);
            }
            Happening::Mark(mark) => {
                if let Some(kind) = SECTIONS.iter().position(|(_, known)| *known == mark) {
                    sections[place].add(kind, span.from_ns, span.to_ns);
                }
            }
            Happening::Woken { by } => {
                if let Some(by) = place_of(by)
                    && wake_ups.len() < MOST_WAKE_UPS
                {
                    let slot = activities[place].slot(span.from_ns);
                    wake_ups.push([by, place, slot.min(SLOTS - 1)]);
                }
            }
        }
    }
    let threads =
        kept.iter().zip(activities.iter().zip(&sections)).map(|(&thread, slots)| ThreadTimeline {
            thread: names[thread].clone(),
            activity: slots.0.letters(ACTIVITIES),
            section: slots.1.letters(SECTIONS),
        });
    Timeline {
        workload: cell.workload.name().to_owned(),
        lock: cell.lock.clone(),
        machine: on.map_or_else(String::new, |on| on.machine().to_owned()),
        params: cell.row_params(),
        length_ns,
        measured_from_ns,
        threads: threads.collect(),
        wake_ups,
    }
}

/// How long each of four things went on in each slot.
#[derive(Clone)]
struct Slots {
    slot_ns: f64,
    took: Vec<[f64; 4]>,
}

impl Slots {
    fn new(length_ns: u64) -> Slots {
        Slots { slot_ns: length_ns as f64 / SLOTS as f64, took: vec![[0.0; 4]; SLOTS] }
    }

    fn slot(&self, ns: u64) -> usize {
        (ns as f64 / self.slot_ns) as usize
    }

    fn add(&mut self, kind: usize, from_ns: u64, to_ns: u64) {
        let (from, to) = (from_ns as f64, to_ns as f64);
        for slot in self.slot(from_ns)..=self.slot(to_ns).min(SLOTS - 1) {
            let (begins, ends) = (slot as f64 * self.slot_ns, (slot + 1) as f64 * self.slot_ns);
            self.took[slot][kind] += (to.min(ends) - from.max(begins)).max(0.0);
        }
    }

    /// The letter of what took the longest in each slot; nothing is one of the choices.
    fn letters(&self, kinds: [(char, &str); 4]) -> String {
        let letter = |took: &[f64; 4]| {
            let nothing = self.slot_ns - took.iter().sum::<f64>();
            let longest =
                took.iter().zip(kinds).fold((nothing, NOTHING), |longest, (took, kind)| {
                    if *took > longest.0 { (*took, kind.0) } else { longest }
                });
            longest.1
        };
        self.took.iter().map(letter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Simulated;
    use fairlock_lab::workloads::mix::{Arrival, Mix};
    use fairlock_report::params;
    use fairlock_report::timeline::HOLD_WRITE;
    use fairlock_sim::profile::Profile;
    use fairlock_sim::timed::Span;

    fn cell(readers: u32, timeline_ns: u64) -> Cell {
        let on = Simulated { timeline_ns, ..Simulated::of(Profile::example(), 1) };
        Cell {
            workload: Mix::dedicated(readers, readers).into(),
            lock: "rwsem".to_owned(),
            repetitions: 1,
            seconds: 0.001,
            on: Some(on),
            for_limit: false,
        }
    }

    fn span(thread: u32, from_ns: u64, to_ns: u64, what: Happening) -> Span {
        Span { thread, cpu: 0, from_ns, to_ns, what }
    }

    #[test]
    fn a_slot_shows_what_took_most_of_it() {
        let length = 10 * SLOTS as u64;
        let recorded = vec![
            span(0, 0, 12, Happening::Activity(Activity::Runs)),
            span(0, 12, length, Happening::Activity(Activity::Sleeps)),
            span(1, 0, 26, Happening::Mark(HOLD_WRITE)),
            span(0, 15, 15, Happening::Woken { by: 1 }),
        ];
        let timeline = beginning(&cell(1, length), &recorded);
        assert_eq!(timeline.threads[0].thread, "reader 1");
        assert_eq!(timeline.threads[0].activity, format!("r{}", "z".repeat(SLOTS - 1)));
        assert_eq!(timeline.threads[1].thread, "writer 1");
        assert_eq!(timeline.threads[1].section, format!("HHH{}", ".".repeat(SLOTS - 3)));
        assert_eq!(timeline.wake_ups, [[1, 0, 1]]);
        assert_eq!(params::number(&timeline.params, "readers"), Some(1.0));
    }

    #[test]
    fn the_beginning_of_measuring_is_kept() {
        let mix = Mix { arrival: Arrival::Staggered, ..Mix::dedicated(1, 1) };
        let cell = Cell { workload: mix.into(), ..cell(1, 1000) };
        // Two threads, 100 µs apart.
        assert_eq!(cell.timeline_ns(), 201_000);
        let recorded = vec![span(1, 100_500, 100_500, Happening::Mark(MEASURING_BEGINS))];
        let timeline = beginning(&cell, &recorded);
        assert_eq!((timeline.length_ns, timeline.measured_from_ns), (201_000, Some(100_500)));
    }

    #[test]
    fn of_many_threads_the_first_and_the_last_are_kept() {
        let timeline = beginning(&cell(100, 1000), &Vec::new());
        let threads: Vec<&str> = timeline.threads.iter().map(|it| it.thread.as_str()).collect();
        assert_eq!(threads.len(), MOST_THREADS);
        assert_eq!((threads[0], threads[15]), ("reader 1", "reader 16"));
        assert_eq!((threads[16], threads[31]), ("writer 85", "writer 100"));
    }
}
