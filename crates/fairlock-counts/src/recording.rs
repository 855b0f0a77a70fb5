//! The records in the file, thread by thread, in plain values: what each thread did, in ticks.
//!
//! As careful as a [`Snapshot`](crate::snapshot): the file is copied piece by piece, each page is read once, and there are
//! no more pages than the caller allows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::{self, LOCKS_AT, OTHERS, RECORD_PAGES, RECORDS, THREADS, THREADS_AT};
use crate::map::monotonic_ns;
use crate::record::Record;
use crate::snapshot::{MOST_LOCKS, stack_index};
use crate::source::{Source, header, path, text, thread_name};

/// One process, with those that it forked off and that are the same program still.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// The process.
    pub pid: u32,
    /// The program's path.
    pub program: PathBuf,
    /// The lock by name.
    pub policy: String,
    /// CLOCK_MONOTONIC when counting began, ns.
    pub began: u64,
    /// Likewise when it began to end; none if it runs, or ended without a word.
    pub ended: Option<u64>,
    /// Likewise when this was copied.
    pub taken: u64,
    /// [`layout::Recording::idle`].
    pub idle: [[u64; 4]; 2],
    /// [`layout::Recording::pairs`].
    pub pairs: [[u64; 2]; 2],
    /// Moments as ticks and as CLOCK_MONOTONIC, ns.
    pub moments: Vec<[u64; 2]>,
    /// Locks that were used or initialised.
    pub locks: Vec<Lock>,
    /// Threads of which there are records; one whose place in the file another one had before it
    /// stands behind that one.
    pub threads: Vec<Thread>,
    /// Pages of records that were read.
    pub pages: usize,
    /// Pages that were not read, as there were too many.
    pub left_out: usize,
}

/// One lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lock {
    /// As [`snapshot::Lock::number`](crate::snapshot::Lock::number).
    pub number: u32,
    /// Where it is, or was; 0 for those that are counted together.
    pub address: u64,
    /// CLOCK_MONOTONIC when it was initialised or used first, ns.
    pub since: u64,
    /// When it was destroyed.
    pub destroyed: Option<u64>,
    /// Index of a stack of the snapshot; none: statically.
    pub initialised_at: Option<usize>,
    /// Likewise: where it was used first.
    pub first_used_at: Option<usize>,
    /// `PTHREAD_RWLOCK_PREFER_…`.
    pub kind: u32,
    /// Process-shared.
    pub is_shared: bool,
    /// The process and the thread that initialised it or used it first, if known.
    pub made_by: Option<(u32, u32)>,
}

/// What one thread did.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Its process: the file's, or one that was forked off.
    pub pid: u32,
    /// The kernel's number of it.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// As they stand in the file: see [`records`](Self::records).
    pub words: Vec<[u64; 2]>,
}

impl Thread {
    /// Its records in order. Words that are no record are left out.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.words.iter().filter_map(|words| Record::decode(*words))
    }
}

/// What can be asked of a file whose process runs, and changed in it, from outside: windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// [`layout::Header::began`].
    pub began: u64,
    /// The process has ended in order.
    pub has_ended: bool,
    /// [`layout::Recording::window`]; 0: nothing is recorded.
    pub window: u32,
    /// [`layout::Header::record_pages`].
    pub record_pages: u32,
    /// [`layout::Header::threads`].
    pub threads: u32,
}

const WINDOW_AT: usize = std::mem::offset_of!(layout::Header, recording)
    + std::mem::offset_of!(layout::Recording, window);
const UNTIL_AT: usize = std::mem::offset_of!(layout::Header, recording)
    + std::mem::offset_of!(layout::Recording, until);

impl State {
    /// # Errors
    /// Those of pread(2), and one that says so if this is no counts file.
    pub fn read(file: &File) -> io::Result<State> {
        let header = header(&Source::of(file))?;
        Ok(State {
            began: header.began.load(Relaxed),
            has_ended: header.ended.load(Relaxed) != 0,
            window: header.recording.window.load(Relaxed),
            record_pages: header.record_pages.load(Relaxed),
            threads: header.threads.load(Relaxed),
        })
    }

    /// Opens the next window, in which so many pages may be filled. Only if the last one is closed, and only
    /// by the one process that opens windows in this file.
    ///
    /// # Errors
    /// Those of pwrite(2).
    pub fn open_window(self, file: &File, pages: u32) -> io::Result<()> {
        assert!(self.window % 2 == 0, "the window is open");
        let until = self.record_pages.saturating_add(pages);
        file.write_all_at(&until.to_ne_bytes(), UNTIL_AT as u64)?;
        file.write_all_at(&self.window.wrapping_add(1).to_ne_bytes(), WINDOW_AT as u64)
    }
}

impl Recording {
    /// What stands in the file now, of so many pages of records at most; none if this file's process
    /// does not record.
    ///
    /// # Errors
    /// Those of pread(2), and one that says so if this is no such file.
    pub fn read(file: &File, most_pages: usize) -> io::Result<Option<Recording>> {
        let mut source = Source::of(file);
        let header = header(&source)?;
        if header.recording.window.load(Relaxed) == 0 {
            return Ok(None);
        }
        let mut recording = Recording::default();
        let pages: Vec<AtomicU32> = source.read(THREADS_AT, THREADS)?;
        let pages: Vec<usize> =
            pages.iter().filter_map(|page| source.page(page.load(Relaxed))).collect();
        let mut left = most_pages.min(RECORD_PAGES as usize);
        for page in pages {
            let thread: layout::Thread = source.one(page)?;
            recording.add_chain(&mut source, thread.records[0].load(Relaxed), &mut left)?;
        }
        // After the records, so that all locks are there that they name.
        let header: layout::Header = source.one(0)?;
        let used = (header.locks.load(Relaxed) as usize).min(MOST_LOCKS);
        let locks: Vec<layout::Lock> = source.read(LOCKS_AT, used)?;
        let locks = (0..).zip(&locks).map(|(number, found)| lock(number, found));
        let about = &header.recording;
        recording.moments.extend(about.moments.each_ref().map(|[ticks, ns]| moment(ticks, ns)));
        recording.moments.retain(|[_, ns]| *ns != 0);
        Ok(Some(Recording {
            pid: header.pid.load(Relaxed),
            program: path(&header.program),
            policy: String::from_utf8_lossy(&text(&header.policy)).into_owned(),
            began: header.began.load(Relaxed),
            ended: Some(header.ended.load(Relaxed)).filter(|at| *at != 0),
            taken: monotonic_ns(),
            idle: about.idle.each_ref().map(|role| role.each_ref().map(|it| it.load(Relaxed))),
            pairs: about.pairs.each_ref().map(|role| role.each_ref().map(|it| it.load(Relaxed))),
            locks: locks.filter(|lock| lock.address != 0 || lock.number == OTHERS).collect(),
            ..recording
        }))
    }

    /// The records of a place for threads, from this page on.
    fn add_chain(
        &mut self,
        source: &mut Source<'_>,
        mut next: u32,
        left: &mut usize,
    ) -> io::Result<()> {
        let mut is_first = true;
        while let Some(at) = source.page(next) {
            if *left == 0 {
                self.left_out += 1;
                let page: AtomicU32 = source.one(at)?;
                next = page.load(Relaxed);
                continue;
            }
            *left -= 1;
            self.pages += 1;
            let page: layout::Records = source.one(at)?;
            next = page.next.load(Relaxed);
            self.moments.push(moment(&page.moment[0], &page.moment[1]));
            let (pid, tid) = (page.pid.load(Relaxed), page.tid.load(Relaxed));
            let is_same = |thread: &&mut Thread| (thread.pid, thread.tid) == (pid, tid);
            let used = (page.used.load(Relaxed) as usize).min(RECORDS);
            let words = page.records[..used].iter();
            let words = words.map(|words| words.each_ref().map(|word| word.load(Relaxed)));
            match self.threads.last_mut().filter(|_| !is_first).filter(is_same) {
                Some(thread) => thread.words.extend(words),
                None => self.threads.push(Thread {
                    pid,
                    tid,
                    name: thread_name(&page.name),
                    words: words.collect(),
                }),
            }
            is_first = false;
        }
        Ok(())
    }
}

fn moment(ticks: &AtomicU64, ns: &AtomicU64) -> [u64; 2] {
    [ticks.load(Relaxed), ns.load(Relaxed)]
}

fn lock(number: u32, lock: &layout::Lock) -> Lock {
    let place = |place: &AtomicU32| stack_index(place.load(Relaxed));
    let [pid, tid] = lock.made_by.each_ref().map(|id| id.load(Relaxed));
    Lock {
        number,
        address: lock.address.load(Relaxed),
        since: lock.since.load(Relaxed),
        destroyed: Some(lock.destroyed.load(Relaxed)).filter(|at| *at != 0),
        initialised_at: place(&lock.initialised_at),
        first_used_at: place(&lock.first_used_at),
        kind: lock.kind.load(Relaxed),
        is_shared: lock.is_shared.load(Relaxed) != 0,
        made_by: (tid != 0).then_some((pid, tid)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use super::*;
    use crate::layout::{FIRST_PAGE, PAGES};
    use crate::map::Map;
    use crate::record::What;
    use crate::regular;

    /// A file in which one place for threads has a chain of pages of records.
    struct Written {
        map: Map,
        thread: u32,
        pages: Vec<u32>,
        _directory: tempfile::TempDir,
    }

    fn released(took: u64) -> Record {
        Record { since: 1, what: What::Released { lock: 2, is_write: false, took } }
    }

    impl Written {
        /// Each page is of the thread with this number, and has records whose times are these.
        fn new(pages: &[(u32, &[u64])]) -> Written {
            let directory = tempfile::tempdir().expect("a folder");
            let map = Map::create(directory.path(), "rwsem").expect("a counts file");
            map.header().recording.until.store(RECORD_PAGES, Relaxed);
            map.header().recording.window.store(1, Relaxed);
            let thread = map.new_page().expect("a page");
            map.threads()[0].store(thread, Release);
            let mut written = Written { map, thread, pages: Vec::new(), _directory: directory };
            pages.iter().for_each(|(tid, times)| written.add(*tid, times));
            written
        }

        fn add(&mut self, tid: u32, times: &[u64]) {
            let number = self.map.new_record_page().expect("a page");
            let page = self.map.records(number).expect("a page");
            page.pid.store(4711, Relaxed);
            page.tid.store(tid, Relaxed);
            page.name[0].store(u64::from_ne_bytes(*b"worker\0\0"), Relaxed);
            page.moment[0].store(1000 * u64::from(number), Relaxed);
            page.moment[1].store(number.into(), Relaxed);
            for (place, took) in page.records.iter().zip(times) {
                let words = released(*took).encode();
                place.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
            }
            page.used.store(times.len() as u32, Release);
            match self.pages.last() {
                Some(last) => self.map.records(*last).expect("a page").next.store(number, Release),
                None => self.counts().records[0].store(number, Release),
            }
            self.pages.push(number);
        }

        fn counts(&self) -> &layout::Thread {
            self.map.thread(self.thread).expect("a page")
        }

        fn read(&self, most_pages: usize) -> Recording {
            let file = regular::open(&self.map.path()).expect("it is there");
            Recording::read(&file, most_pages).expect("a counts file").expect("it records")
        }
    }

    fn times(thread: &Thread) -> Vec<u64> {
        let took = |record: Record| match record.what {
            What::Released { took, .. } => took,
            what => panic!("{what:?}"),
        };
        thread.records().map(took).collect()
    }

    #[test]
    fn counts_leave_room_for_records() {
        let written = Written::new(&[]);
        let header = written.map.header();
        header.next_page.store(PAGES - RECORD_PAGES - 1, Relaxed);
        assert!(written.map.new_page().is_some() && written.map.new_page().is_none());
        let pages = [(); 2].map(|()| written.map.new_record_page().expect("a page"));
        assert!(pages.iter().all(|page| written.map.records(*page).is_some()));
        assert_eq!(pages, [PAGES - 1, PAGES - 2]);
        header.record_pages.store(RECORD_PAGES - 1, Relaxed);
        assert_eq!(written.map.new_record_page(), Some(PAGES - RECORD_PAGES));
        assert_eq!(written.map.new_record_page(), None);
    }

    #[test]
    fn threads_that_had_the_same_place_are_told_apart() {
        let written = Written::new(&[(17, &[1, 2]), (17, &[3]), (18, &[4])]);
        let recording = written.read(9);
        let found: Vec<_> =
            recording.threads.iter().map(|thread| (thread.tid, times(thread))).collect();
        assert_eq!(found, [(17, vec![1, 2, 3]), (18, vec![4])]);
        assert_eq!((recording.threads[0].pid, &*recording.threads[0].name), (4711, "worker"));
        assert_eq!((recording.pages, recording.left_out), (3, 0));
        let first = u64::from(written.pages[0]);
        assert_eq!(recording.moments[0], [1000 * first, first]);
    }

    #[test]
    fn no_more_pages_are_read_than_allowed() {
        let written = Written::new(&[(17, &[1]), (17, &[2]), (18, &[3])]);
        let recording = written.read(1);
        assert_eq!((recording.pages, recording.left_out), (1, 2));
        assert_eq!(times(&recording.threads[0]), [1]);
    }

    #[test]
    fn a_process_that_does_not_record_has_no_recording() {
        let written = Written::new(&[]);
        written.map.header().recording.window.store(0, Relaxed);
        let file = regular::open(&written.map.path()).expect("it is there");
        assert!(Recording::read(&file, 9).expect("a counts file").is_none());
    }

    #[test]
    fn numbers_of_pages_that_lead_astray_are_not_followed() {
        let written = Written::new(&[(17, &[1]), (17, &[2])]);
        let last = written.map.records(written.pages[1]).expect("a page");
        for astray in [0, 1, FIRST_PAGE - 1, PAGES, u32::MAX, written.thread]
            .into_iter()
            .chain(written.pages.iter().copied())
        {
            last.next.store(astray, Relaxed);
            assert_eq!(times(&written.read(9).threads[0]), [1, 2], "{astray}");
        }
        last.used.store(u32::MAX, Relaxed);
        // What was never written is no record.
        assert_eq!(times(&written.read(9).threads[0]), [1, 2]);
    }

    #[test]
    fn a_window_opened_from_outside_gives_pages_until_they_are_used_up() {
        let written = Written::new(&[(17, &[1])]);
        let file = File::options().read(true).write(true).open(written.map.path());
        let file = file.expect("it is there");
        let recording = &written.map.header().recording;
        recording.window.store(2, Relaxed);
        recording.until.store(1, Relaxed);
        assert!(written.map.new_record_page().is_none());
        let state = State::read(&file).expect("a counts file");
        assert_eq!((state.window, state.record_pages, state.has_ended), (2, 1, false));
        state.open_window(&file, 2).expect("it can be written");
        assert_eq!(recording.window.load(Relaxed), 3);
        assert_eq!([(); 3].map(|()| written.map.new_record_page().is_some()), [true, true, false]);
        // Whatever may stand there, a file has no more.
        recording.until.store(u32::MAX, Relaxed);
        written.map.header().record_pages.store(RECORD_PAGES, Relaxed);
        assert!(written.map.new_record_page().is_none());
    }
}
