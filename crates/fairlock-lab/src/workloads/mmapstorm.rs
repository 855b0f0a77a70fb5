//! `mmapstorm`: threads of one process that map and unmap memory, beside threads whose memory the kernel fills page
//! by page. They meet at the lock of the process's address space, `mmap_lock` in Linux, an rwsem.
//!
//! | role | one operation | the lock |
//! |---|---|---|
//! | writer | maps some pages, writes to each, looks at them, unmaps them | exclusive to map and to unmap; shared for a fault on a mapping that has no anon_vma yet |
//! | reader | gives up its pages of a mapping that all readers share, and has the kernel write into them | shared, once for each page |
//!
//! Since Linux 6.4 a page fault takes the lock of one mapping (vma) where it can, and leaves the process's lock
//! alone. A fault inside a system call does not: a thread that reads a file into a fresh buffer takes the process's
//! lock for each page of it. So that is what readers do. Their file is in memory and costs no I/O.
//!
//! `wait` has the calls: each mmap and munmap of a writer, each read of the file of a reader. `hold` is empty, since
//! the lab cannot see the kernel's lock being granted. `latency` has the whole operations.
//!
//! Every run checks that a page is zero when it is new or was given up, and that it then has what its thread wrote or
//! read there.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use fairlock_report::units::{at_least_one, count, several};
use serde::{Deserialize, Serialize};

use super::{Body, Failure, run_threads};
use crate::error::{LabError, Violation};
use crate::locks::KERNEL;
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, DefaultSubjects, KERNEL_ALONE, LOCKS, Machine, Request, Role, Subjects,
    Workload, check_kernel, check_thread_count, defaults, points, roles, wrong,
};
use crate::world::World;
use crate::world::pages::page_bytes;
use crate::world::scratch::in_memory;

/// Of all threads together.
const MOST_BYTES: u64 = 1 << 30;
const MOST_PAGES: u32 = 1024;

/// Parameters of [`mmapstorm`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Mmapstorm {
    /// Threads that have the kernel fill pages of theirs: they take the lock shared
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count)]
    pub readers: u32,
    /// Threads that map and unmap pages: they take the lock exclusively
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count)]
    pub writers: u32,
    /// Pages that a thread has at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub pages: u32,
}

impl Default for Mmapstorm {
    fn default() -> Mmapstorm {
        defaults()
    }
}

impl Workload for Mmapstorm {
    const NAME: &'static str = "mmapstorm";
    const ABOUT: &'static str = "threads that map and unmap memory beside threads with page faults, under their process's lock in the kernel";
    const EXAMPLES: &'static [&'static str] =
        &["", "--readers 8 --writers 0,1,8", "--readers 8 --writers 8 --pages 1,16,256"];
    const NOTE: &'static str = "In the table `wait` is the time of the calls: mmap and munmap of a writer, the read into fresh pages of a \
         reader. `latency` is that of the whole operations.";
    const SUBJECTS: Subjects = Subjects {
        all: |simulated| if simulated { Vec::new() } else { vec![KERNEL] },
        check: |name, simulated| check_kernel(Mmapstorm::NAME, "mix", name, simulated),
        ..LOCKS
    };
    const DEFAULT_SUBJECTS: DefaultSubjects = KERNEL_ALONE;
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("writers", "0,1,4")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", self.writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![("pages", format!("{} a thread", several(self.pages.into(), "page")))]
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        let threads = u64::from(self.readers) + u64::from(self.writers);
        check_thread_count("readers + writers", threads)?;
        if !(1..=MOST_PAGES).contains(&self.pages) {
            return wrong("pages", self.pages, format!("1 to {MOST_PAGES}"));
        }
        if threads * u64::from(self.pages) * page_bytes() as u64 > MOST_BYTES {
            let valid = format!("at most {MOST_BYTES} bytes for all threads together");
            return wrong("pages", self.pages, valid);
        }
        Ok(())
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        let (world, pages) = (request.world, self.pages as usize);
        // At least one page, which nobody uses where nobody reads.
        let readers_pages = (self.readers as usize * pages).max(1);
        let (file, shared) = (stamped_file(readers_pages)?, Mapping::new(readers_pages)?);
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for number in 0..self.readers as usize {
            let reader =
                Reader { world, file: &file, shared: &shared, first: number * pages, pages };
            bodies.push(Box::new(move || reader.read_until_the_end()));
        }
        for number in 0..self.writers {
            bodies.push(Box::new(move || write_until_the_end(world, number, pages)));
        }
        run_threads(request, Mmapstorm::NAME, bodies)
    }
}

/// A file in memory whose pages have stamps: that of a page is its number, from 1.
fn stamped_file(pages: usize) -> Result<File, LabError> {
    let file = in_memory(c"fairlock-mmapstorm")?;
    let mut page = vec![0; page_bytes()];
    for number in 0..pages {
        let stamp = (number as u64 + 1).to_ne_bytes();
        page.chunks_exact_mut(stamp.len()).for_each(|word| word.copy_from_slice(&stamp));
        let written = file.write_all_at(&page, (number * page_bytes()) as u64);
        written.map_err(|source| LabError::io("write a file in memory", source))?;
    }
    Ok(file)
}

/// One reader: its pages are some of those of a mapping, and it reads the same pages of the file.
struct Reader<'a, W> {
    world: &'a W,
    file: &'a File,
    shared: &'a Mapping,
    first: usize,
    pages: usize,
}

impl<W: World> Reader<'_, W> {
    fn read_until_the_end(self) -> Result<ThreadRecord, Failure> {
        let Reader { world, first, pages, shared, .. } = self;
        let mut recorder = RoleRecorder::default();
        for operation in 0_usize.. {
            let started = world.now();
            shared.give_up(first, pages)?;
            // Only one page: a look at it is a fault of its own.
            shared.check(first + operation % pages, 0)?;
            let asked = world.now();
            self.fill()?;
            recorder.wait.record(world.now().saturating_sub(asked));
            for page in first..first + pages {
                shared.check(page, page as u64 + 1)?;
            }
            recorder.latency.record(world.now().saturating_sub(started));
            recorder.executed += 1;
            if !world.running() {
                break;
            }
            recorder.ops += 1;
        }
        Ok(ThreadRecord { reader: Some(recorder), ..ThreadRecord::default() })
    }

    /// Has the kernel copy from the file into pages that are not there yet.
    fn fill(&self) -> Result<(), LabError> {
        let (length, offset) = (self.pages * page_bytes(), self.first * page_bytes());
        // SAFETY: the pages are this thread's part of the mapping, which is only used through atomics and this call.
        let count = unsafe {
            let place = self.shared.start.add(offset).as_ptr().cast();
            libc::pread(self.file.as_raw_fd(), place, length, offset as libc::off_t)
        };
        match usize::try_from(count) {
            Ok(count) if count == length => Ok(()),
            Ok(count) => {
                let short = format!("only {count} of {length} bytes came back");
                Err(LabError::io("read a file in memory", io::Error::other(short)))
            }
            Err(_) => Err(LabError::io("read a file in memory", io::Error::last_os_error())),
        }
    }
}

/// One writer: maps pages, writes to them and unmaps them.
fn write_until_the_end<W: World>(
    world: &W,
    number: u32,
    pages: usize,
) -> Result<ThreadRecord, Failure> {
    let mut recorder = RoleRecorder::default();
    for operation in 1_u64.. {
        let stamp = u64::from(number + 1) << 40 | operation;
        let started = world.now();
        let mapping = Mapping::new(pages)?;
        recorder.wait.record(world.now().saturating_sub(started));
        mapping.check(operation as usize % pages, 0)?;
        (0..pages).for_each(|page| mapping.write(page, stamp + page as u64));
        (0..pages).try_for_each(|page| mapping.check(page, stamp + page as u64))?;
        let asked = world.now();
        mapping.unmap()?;
        let ended = world.now();
        recorder.wait.record(ended.saturating_sub(asked));
        recorder.latency.record(ended.saturating_sub(started));
        recorder.executed += 1;
        if !world.running() {
            break;
        }
        recorder.ops += 1;
    }
    Ok(ThreadRecord { writer: Some(recorder), ..ThreadRecord::default() })
}

/// Private anonymous memory, whose pages are there once they are written to.
///
/// Only the thread that a page belongs to reads it and writes to it, through atomics or by a system call.
struct Mapping {
    start: NonNull<u8>,
    pages: usize,
    page_bytes: usize,
}

// SAFETY: the memory belongs to no thread, and is only used as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// So many pages, none of which is there.
    fn new(pages: usize) -> Result<Mapping, LabError> {
        let page_bytes = page_bytes();
        // No huge pages: one fault would bring many pages.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping touches no memory that is in use.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), pages * page_bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(LabError::io("map memory", io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).expect("no mapping begins at 0");
        Ok(Mapping { start, pages, page_bytes })
    }

    /// The first and the last word of a page.
    fn words(&self, page: usize) -> [&AtomicU64; 2] {
        assert!(page < self.pages);
        let first = page * self.page_bytes;
        let last = first + self.page_bytes - size_of::<AtomicU64>();
        // SAFETY: aligned words of a page of this mapping, which lasts as long as `self`.
        [first, last].map(|offset| unsafe { self.start.add(offset).cast().as_ref() })
    }

    fn write(&self, page: usize, stamp: u64) {
        self.words(page).iter().for_each(|word| word.store(stamp, Relaxed));
    }

    /// Looks whether a page has this stamp.
    fn check(&self, page: usize, expected: u64) -> Result<(), Violation> {
        let mut found = self.words(page).map(|word| word.load(Relaxed)).into_iter();
        match found.find(|&found| found != expected) {
            None => Ok(()),
            Some(found) => Err(Violation::StalePage { expected, found }),
        }
    }

    /// Has the kernel take pages back; whoever looks at them then finds zeros.
    fn give_up(&self, first: usize, pages: usize) -> Result<(), LabError> {
        assert!(first + pages <= self.pages);
        // SAFETY: inside this mapping; what is lost there are values of atomics.
        let result = unsafe {
            let place = self.start.add(first * self.page_bytes).as_ptr().cast();
            libc::madvise(place, pages * self.page_bytes, libc::MADV_DONTNEED)
        };
        match result {
            0 => Ok(()),
            _ => Err(LabError::io("give up memory", io::Error::last_os_error())),
        }
    }

    /// # Errors
    /// If the system refuses, as it may where a process has very many mappings.
    fn unmap(self) -> Result<(), LabError> {
        let result = self.unmapped();
        mem::forget(self);
        result
    }

    /// Nobody may use it any more.
    fn unmapped(&self) -> Result<(), LabError> {
        let bytes = self.pages * self.page_bytes;
        // SAFETY: mapped by `new` with this length; whatever borrows from it has ended.
        match unsafe { libc::munmap(self.start.as_ptr().cast(), bytes) } {
            0 => Ok(()),
            _ => Err(LabError::io("unmap memory", io::Error::last_os_error())),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.unmapped();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_zero_until_it_is_written_and_again_when_it_was_given_up() {
        let mapping = Mapping::new(3).unwrap();
        assert_eq!(mapping.check(1, 0), Ok(()));
        mapping.write(1, 7);
        assert_eq!((mapping.check(1, 7), mapping.check(2, 0)), (Ok(()), Ok(())));
        assert_eq!(mapping.check(1, 8), Err(Violation::StalePage { expected: 8, found: 7 }));
        mapping.give_up(0, 2).unwrap();
        assert_eq!(mapping.check(1, 0), Ok(()));
        mapping.unmap().unwrap();
    }

    #[test]
    fn a_page_whose_end_is_older_than_its_beginning_is_found() {
        let mapping = Mapping::new(1).unwrap();
        mapping.write(0, 7);
        mapping.words(0)[0].store(8, Relaxed);
        assert_eq!(mapping.check(0, 8), Err(Violation::StalePage { expected: 8, found: 7 }));
    }

    #[test]
    fn readers_find_each_page_of_the_file_in_its_place() {
        let (file, shared) = (stamped_file(4).unwrap(), Mapping::new(4).unwrap());
        let world = crate::world::RealWorld::new(false);
        let reader = Reader { world: &world, file: &file, shared: &shared, first: 2, pages: 2 };
        reader.fill().unwrap();
        let stamps = [(0, 0), (1, 0), (2, 3), (3, 4)];
        stamps.iter().for_each(|&(page, stamp)| assert_eq!(shared.check(page, stamp), Ok(())));
    }
}
