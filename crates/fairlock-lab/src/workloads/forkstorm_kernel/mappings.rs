//! Anonymous mappings that are copied by fork(): what the daemon has, and all that it forks inherit.
//!
//! Each mapping is followed by a page that nobody may touch, so that the kernel keeps them apart; and
//! the daemon writes to all pages, so that each mapping has its anon_vma before the first fork. All are cut
//! from one mapping. If that is done before the daemon writes, each gets an anon_vma of its own; if it is done
//! afterwards, all keep the one that the large mapping has got.
//!
//! Invariant: a page's first word is a stamp of the process that wrote it last *in this address
//! space*: a forked process finds its parent's, and its own writes are nobody else's.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::shared::Fault;
use crate::error::LabError;
use crate::world::pages::page_bytes;

/// A process that writes stamps: its client and depth, or the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamper(u64);

impl Stamper {
    /// The process that has the mappings first.
    pub const DAEMON: Stamper = Stamper(1);

    /// A process of this depth below the daemon, 1 to 3.
    pub fn forked(client: u32, depth: u32) -> Stamper {
        Stamper((u64::from(client) + 1) * 4 + u64::from(depth))
    }

    fn stamp(self, mapping: usize, page: usize) -> u64 {
        self.0 << 32 | (mapping as u64) << 16 | page as u64
    }
}

/// The lock that the kernel takes for a mapping: that of its anon_vma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Each mapping has its own.
    Own,
    /// All mappings have one.
    Shared,
}

const OPEN: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
const CLOSED: libc::c_int = libc::PROT_NONE;

/// The mappings.
pub struct Mappings {
    start: NonNull<u8>,
    page_bytes: usize,
    count: usize,
    /// Of each mapping.
    pages: usize,
}

impl Mappings {
    /// So many mappings with so many pages each, all of them stamped by the daemon.
    ///
    /// # Errors
    /// When the system has no room for them, or refuses so many.
    pub fn new(count: u32, pages: u32, lock: Lock) -> Result<Mappings, LabError> {
        let (count, pages, page_bytes) = (count as usize, pages as usize, page_bytes());
        let length = count * (pages + 1) * page_bytes;
        let access = match lock {
            Lock::Own => CLOSED,
            Lock::Shared => OPEN,
        };
        // SAFETY: a new mapping touches no memory that is in use.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(LabError::io("map memory", io::Error::last_os_error()));
        }
        let start: NonNull<u8> = NonNull::new(start.cast()).expect("no mapping begins at 0");
        // A huge page would be copied at one go. A kernel that has none refuses, and needs none.
        // SAFETY: all of it is this new mapping, which nobody uses yet.
        unsafe { libc::madvise(start.as_ptr().cast(), length, libc::MADV_NOHUGEPAGE) };
        let mappings = Mappings { start, page_bytes, count, pages };
        match lock {
            Lock::Own => {
                mappings.protect(0, pages, OPEN)?;
                mappings.write(pages, Stamper::DAEMON);
            }
            Lock::Shared => {
                mappings.write(pages, Stamper::DAEMON);
                mappings.protect(pages, 1, CLOSED)?;
            }
        }
        Ok(mappings)
    }

    /// Cuts the one mapping into many: by this access to so many pages of each.
    fn protect(&self, page: usize, pages: usize, access: libc::c_int) -> Result<(), LabError> {
        for mapping in 0..self.count {
            // SAFETY: inside the new mapping, whose pages nobody refers to yet.
            let result = unsafe {
                let first = self.start.add(self.offset(mapping, page));
                libc::mprotect(first.as_ptr().cast(), pages * self.page_bytes, access)
            };
            if result != 0 {
                return Err(LabError::io("cut memory into mappings", io::Error::last_os_error()));
            }
        }
        Ok(())
    }

    fn offset(&self, mapping: usize, page: usize) -> usize {
        (mapping * (self.pages + 1) + page) * self.page_bytes
    }

    fn word(&self, mapping: usize, page: usize) -> &AtomicU64 {
        assert!(mapping < self.count && page < self.pages);
        // SAFETY: the first word of a page inside the mapping that may be touched; it lasts as long
        // as `self`, and is only used as an atomic.
        unsafe { self.start.add(self.offset(mapping, page)).cast().as_ref() }
    }

    /// Stamps the first so many pages of each mapping.
    pub fn write(&self, pages: usize, by: Stamper) {
        for mapping in 0..self.count {
            for page in 0..pages {
                self.word(mapping, page).store(by.stamp(mapping, page), Relaxed);
            }
        }
    }

    /// Looks whether the first so many pages of each mapping have one process's stamp, and the others
    /// the daemon's.
    ///
    /// # Errors
    /// [`Fault::CopyOnWrite`] with the first page that is not so.
    pub fn check(&self, pages: usize, by: Stamper) -> Result<(), Fault> {
        for mapping in 0..self.count {
            for page in 0..self.pages {
                let by = if page < pages { by } else { Stamper::DAEMON };
                let (expected, found) =
                    (by.stamp(mapping, page), self.word(mapping, page).load(Relaxed));
                if expected != found {
                    return Err(Fault::CopyOnWrite { expected, found });
                }
            }
        }
        Ok(())
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        let length = self.offset(self.count, 0);
        // SAFETY: mapped by `new` with this length; whatever borrows from it has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_keeps_the_mappings_apart() {
        let (count, pages) = (16, 4);
        for lock in [Lock::Own, Lock::Shared] {
            let mappings = Mappings::new(count, pages, lock).unwrap();
            assert_eq!(mappings.check(0, Stamper::DAEMON), Ok(()));
            let bytes = pages as usize * page_bytes();
            assert_eq!(private_mappings(&mappings), vec![bytes; count as usize], "{lock:?}");
        }
    }

    /// The bytes of each, as the system lists them.
    fn private_mappings(mappings: &Mappings) -> Vec<usize> {
        let start = mappings.start.as_ptr() as usize;
        let end = start + mappings.offset(mappings.count, 0);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inside = maps.lines().filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|it| usize::from_str_radix(it, 16).unwrap());
            let private = (start..end).contains(&from) && rest.starts_with("rw-p");
            private.then_some(to - from)
        });
        inside.collect()
    }

    #[test]
    fn a_page_of_somebody_else_is_found() {
        let mappings = Mappings::new(3, 2, Lock::Own).unwrap();
        let own = Stamper::forked(5, 2);
        assert_eq!(mappings.check(0, own), Ok(()));
        mappings.write(1, own);
        assert_eq!(mappings.check(1, own), Ok(()));
        let (expected, found) = (Stamper::DAEMON.stamp(0, 0), own.stamp(0, 0));
        assert_eq!(mappings.check(0, own), Err(Fault::CopyOnWrite { expected, found }));
    }
}
