//! Writes down who did what when, for the first part of a run.

use super::{Activity, Happening, ORIGIN, Ps, Span, Timeline};

#[derive(Debug, Clone, Copy)]
struct Open<T> {
    what: T,
    cpu: u32,
    since: Ps,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    activity: Option<Open<Activity>>,
    mark: Option<Open<&'static str>>,
}

/// Collects spans until its time is over.
#[derive(Debug)]
pub(super) struct Recorder {
    until: Ps,
    on: bool,
    lanes: Vec<Lane>,
    spans: Timeline,
}

fn ns(moment: Ps) -> u64 {
    (moment - ORIGIN) / 1000
}

impl Recorder {
    pub(super) fn new(timeline_ns: u64, threads: usize) -> Recorder {
        Recorder {
            until: ORIGIN + timeline_ns * 1000,
            on: timeline_ns > 0,
            lanes: vec![Lane::default(); threads],
            spans: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn activity(&mut self, thread: u32, cpu: u32, now: Ps, what: Activity) {
        let lane = &mut self.lanes[thread as usize];
        if lane.activity.is_some_and(|open| open.what == what && open.cpu == cpu) {
            return;
        }
        let open = lane.activity.replace(Open { what, cpu, since: now });
        self.close(thread, open, now, Happening::Activity);
    }

    /// An empty text ends the one before.
    pub(super) fn mark(&mut self, thread: u32, cpu: u32, now: Ps, what: &'static str) {
        let next = (!what.is_empty()).then_some(Open { what, cpu, since: now });
        let open = std::mem::replace(&mut self.lanes[thread as usize].mark, next);
        self.close(thread, open, now, Happening::Mark);
    }

    pub(super) fn moment(&mut self, thread: u32, cpu: u32, now: Ps, what: Happening) {
        if self.on {
            self.spans.push(Span { thread, cpu, from_ns: ns(now), to_ns: ns(now), what });
        }
        self.switch_off_after(now);
    }

    fn close<T>(
        &mut self,
        thread: u32,
        open: Option<Open<T>>,
        now: Ps,
        happening: impl Fn(T) -> Happening,
    ) {
        if let Some(Open { what, cpu, since }) = open
            && since < now
        {
            let what = happening(what);
            let to = now.min(self.until.max(since));
            self.spans.push(Span { thread, cpu, from_ns: ns(since), to_ns: ns(to), what });
        }
        self.switch_off_after(now);
    }

    /// Closes everything once the time is over.
    fn switch_off_after(&mut self, now: Ps) {
        if self.on && now >= self.until {
            self.on = false;
            self.close_all(self.until);
        }
    }

    fn close_all(&mut self, now: Ps) {
        for thread in 0..self.lanes.len() as u32 {
            let lane = std::mem::take(&mut self.lanes[thread as usize]);
            self.close(thread, lane.activity.filter(|it| it.since < now), now, Happening::Activity);
            self.close(thread, lane.mark.filter(|it| it.since < now), now, Happening::Mark);
        }
    }

    pub(super) fn finish(mut self, now: Ps) -> Timeline {
        if self.on {
            self.on = false;
            self.close_all(now);
        }
        self.spans
    }
}
