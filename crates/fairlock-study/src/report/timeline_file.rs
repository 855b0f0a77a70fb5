//! Timelines in the Trace Event Format, which Perfetto and chrome://tracing open.
//!
//! Each cell is two processes: its threads, each with a track for what it does and one for what it
//! does with the lock, and the CPUs with the threads that run there. Wake-ups are arrows from the
//! waker to the moment at which the woken thread runs.

use std::io::{self, Write};

use fairlock_report::timeline::MEASURING_BEGINS;
use fairlock_sim::timed::{Activity, Happening, Span, Timeline};
use serde::Serialize;

/// All of a timeline, with its names.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTimeline {
    /// The cell in words.
    pub title: String,
    /// The threads' names.
    pub threads: Vec<String>,
    /// What they did.
    pub timeline: Timeline,
}

/// One object of the format; times in µs.
#[derive(Serialize, Default)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    cat: &'static str,
    pid: usize,
    tid: usize,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cname: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    /// How far a moment reaches: `p` for all of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Name<'a>>,
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'a str,
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The words for an activity, and the viewer's colour for it.
fn words(activity: Activity) -> (&'static str, &'static str) {
    match activity {
        Activity::Runs => ("runs", "thread_state_running"),
        Activity::Spins => ("spins", "thread_state_iowait"),
        Activity::Sleeps => ("sleeps", "thread_state_sleeping"),
        Activity::Ready => ("ready", "thread_state_runnable"),
    }
}

/// Writes one event, and the comma before all but the first.
struct Out<W> {
    file: W,
    any: bool,
}

impl<W: Write> Out<W> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.file.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        serde_json::to_writer(&mut self.file, event).map_err(io::Error::from)
    }

    fn name(&mut self, what: &'static str, pid: usize, tid: usize, name: &str) -> io::Result<()> {
        let args = Some(Name { name });
        self.event(&Event { ph: "M", name: what, pid, tid, args, ..Event::default() })
    }
}

/// The tracks of a thread: what it does with the lock, and below what it does.
fn tracks(thread: u32) -> (usize, usize) {
    (2 * thread as usize, 2 * thread as usize + 1)
}

/// Writes the timelines.
///
/// # Errors
/// The writer's.
pub fn write(file: impl Write, timelines: &[NamedTimeline]) -> io::Result<()> {
    let mut out = Out { file, any: false };
    out.file.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut arrows = 0;
    for (index, named) in timelines.iter().enumerate() {
        let (threads, cpus) = (2 * index + 1, 2 * index + 2);
        out.name("process_name", threads, 0, &named.title)?;
        for (thread, name) in (0..).zip(&named.threads) {
            let (lock, activity) = tracks(thread);
            out.name("thread_name", threads, lock, &format!("{name}: lock"))?;
            out.name("thread_name", threads, activity, name)?;
        }
        out.name("process_name", cpus, 0, &format!("CPUs: {}", named.title))?;
        let mut used: Vec<u32> = named.timeline.iter().map(|span| span.cpu).collect();
        used.sort_unstable();
        used.dedup();
        for cpu in used {
            out.name("thread_name", cpus, cpu as usize, &format!("CPU {cpu}"))?;
        }
        let name_of = |thread: u32| named.threads.get(thread as usize).map_or("", String::as_str);
        for span in &named.timeline {
            let (lock, activity) = tracks(span.thread);
            let slice = Event {
                ph: "X",
                pid: threads,
                ts: microseconds(span.from_ns),
                dur: Some(microseconds(span.to_ns - span.from_ns)),
                ..Event::default()
            };
            match span.what {
                Happening::Mark(name) if name == MEASURING_BEGINS => {
                    let moment = Event { ph: "i", dur: None, s: Some("p"), ..slice };
                    out.event(&Event { name, cat: "lock", tid: lock, ..moment })?;
                }
                Happening::Mark(name) => {
                    out.event(&Event { name, cat: "lock", tid: lock, ..slice })?;
                }
                Happening::Activity(what) => {
                    let (name, color) = words(what);
                    let cname = Some(color);
                    out.event(&Event { name, cat: "activity", tid: activity, cname, ..slice })?;
                    if matches!(what, Activity::Runs | Activity::Spins) {
                        let (name, tid) = (name_of(span.thread), span.cpu as usize);
                        let slice =
                            Event { ph: "X", ts: slice.ts, dur: slice.dur, ..Event::default() };
                        out.event(&Event { name, cat: "cpu", pid: cpus, tid, cname, ..slice })?;
                    }
                }
                Happening::Woken { by } => {
                    let Some(runs_ns) = runs_next(&named.timeline, span) else { continue };
                    arrows += 1;
                    let arrow = |ph, thread, ns| Event {
                        ph,
                        name: "wake-up",
                        cat: "wake-up",
                        pid: threads,
                        tid: tracks(thread).1,
                        ts: microseconds(ns),
                        id: Some(arrows),
                        ..Event::default()
                    };
                    out.event(&arrow("s", by, span.from_ns))?;
                    out.event(&Event { bp: Some("e"), ..arrow("f", span.thread, runs_ns) })?;
                }
            }
        }
    }
    out.file.write_all(b"\n]}\n")?;
    out.file.flush()
}

/// When a woken thread runs.
fn runs_next(timeline: &Timeline, woken: &Span) -> Option<u64> {
    let runs = |span: &&Span| {
        span.thread == woken.thread
            && span.from_ns >= woken.from_ns
            && matches!(span.what, Happening::Activity(Activity::Runs | Activity::Spins))
    };
    // Spans stand in the order of their ends, so what follows comes soon after the wake-up.
    let after = timeline.partition_point(|span| span.to_ns < woken.to_ns);
    timeline[after..].iter().find(runs).map(|span| span.from_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_file_has_slices_names_and_arrows() {
        let span = |thread, from_ns, to_ns, what| Span { thread, cpu: 7, from_ns, to_ns, what };
        let named = NamedTimeline {
            title: "rwsem".to_owned(),
            threads: vec!["reader 1".to_owned(), "writer 1".to_owned()],
            timeline: vec![
                span(1, 1000, 1000, Happening::Woken { by: 0 }),
                span(0, 0, 1500, Happening::Activity(Activity::Runs)),
                span(1, 0, 4000, Happening::Activity(Activity::Sleeps)),
                span(1, 4000, 5000, Happening::Activity(Activity::Runs)),
                span(1, 4100, 4900, Happening::Mark("hold write")),
                span(1, 4900, 4900, Happening::Mark(MEASURING_BEGINS)),
            ],
        };
        let mut text = Vec::new();
        write(&mut text, &[named]).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        let of = |ph: &str| -> Vec<&Value> { events.iter().filter(|it| it["ph"] == ph).collect() };
        assert_eq!(of("M").len(), 1 + 4 + 1 + 1);
        // Three activities, two of them on a CPU, and a mark.
        assert_eq!(of("X").len(), 6);
        let hold = of("X").into_iter().find(|it| it["name"] == "hold write").unwrap();
        assert_eq!((hold["ts"].as_f64(), hold["dur"].as_f64()), (Some(4.1), Some(0.8)));
        let moment = of("i")[0];
        assert_eq!((&moment["name"], &moment["s"]), (&MEASURING_BEGINS.into(), &"p".into()));
        assert!(moment["ts"].as_f64() == Some(4.9) && moment.get("dur").is_none(), "{moment}");
        let (from, to) = (of("s")[0], of("f")[0]);
        assert_eq!((from["tid"].as_u64(), from["ts"].as_f64()), (Some(1), Some(1.0)));
        assert_eq!((to["tid"].as_u64(), to["ts"].as_f64()), (Some(3), Some(4.0)));
        assert_eq!(from["id"], to["id"]);
    }

    #[test]
    fn no_timeline_makes_a_file_without_events() {
        let mut text = Vec::new();
        write(&mut text, &[]).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(file["traceEvents"].as_array().unwrap().len(), 0);
    }
}
