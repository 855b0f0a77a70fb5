//! Pages in memory, and copies out of them while others may write: what a kernel's page cache is.
//!
//! A page is made of words, so that whoever reads beside a writer gets a mixture of two writes and
//! never undefined behaviour. On x86-64 a copy is one string instruction, as kernels have it and
//! as fast as any `memcpy`; elsewhere it goes word by word.

use std::sync::atomic::AtomicU64;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::Ordering;

/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;
pub(crate) const WORD_BYTES: u32 = 8;

/// How many words have so many bytes.
pub(crate) const fn words(bytes: u32) -> usize {
    (bytes / WORD_BYTES) as usize
}

/// Words from the beginning of a page on.
pub struct Aligned<T> {
    storage: Vec<T>,
    start: usize,
    count: usize,
}

impl<T: Default> Aligned<T> {
    /// So many zeros.
    pub(crate) fn new(count: usize) -> Aligned<T> {
        let page = PAGE_BYTES as usize / size_of::<T>();
        let storage: Vec<T> = std::iter::repeat_with(T::default).take(count + page).collect();
        let start = storage.as_ptr().align_offset(PAGE_BYTES as usize);
        Aligned { storage, start, count }
    }

    pub(crate) fn words(&self) -> &[T] {
        &self.storage[self.start..self.start + self.count]
    }

    pub(crate) fn words_mut(&mut self) -> &mut [T] {
        &mut self.storage[self.start..self.start + self.count]
    }
}

/// Bytes of a page of this machine's memory, which need not be [`PAGE_BYTES`].
pub(crate) fn page_bytes() -> usize {
    // SAFETY: the call only answers a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("the system knows how large its pages are")
}

/// Copies words that others may write to meanwhile.
#[inline]
pub(crate) fn copy_out(from: &[AtomicU64], to: &mut [u64]) {
    assert_eq!(from.len(), to.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both sides have so many aligned words and do not overlap, as `to` is borrowed alone;
    // the direction flag is clear outside of assembly. The instruction reads each word of `from`
    // whole, once and in no promised order, as a relaxed load of it would.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") from.len() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") to.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (from, to) in from.iter().zip(to) {
        *to = from.load(Ordering::Relaxed);
    }
}

/// Overwrites words that others may read or write meanwhile.
#[inline]
pub(crate) fn fill(words: &[AtomicU64], stamp: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `words` has so many aligned words, which may be changed through a shared reference;
    // the direction flag is clear outside of assembly. The instruction writes each word whole, as
    // a relaxed store would.
    unsafe {
        std::arch::asm!(
            "rep stosq",
            inout("rcx") words.len() => _,
            inout("rdi") words.as_ptr() => _,
            in("rax") stamp,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for word in words {
        word.store(stamp, Ordering::Relaxed);
    }
}

/// The first stamp and another one, if there are several.
#[inline]
pub(crate) fn torn(words: &[u64]) -> Option<(u64, u64)> {
    let first = *words.first()?;
    // Without a branch for each word, so that they are compared many at a time.
    let differences = words.iter().fold(0, |differences, word| differences | (word ^ first));
    if differences == 0 {
        return None;
    }
    words.iter().find(|word| **word != first).map(|other| (first, *other))
}

/// The same memory as bytes, for system calls.
pub(crate) fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the slice covers the memory of `words`, which is mutably borrowed for as long. Any bytes are
    // valid words, any words are valid bytes, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_copy_has_every_word_and_nothing_else() {
        let page = Aligned::<AtomicU64>::new(1024);
        for (word, value) in page.words().iter().zip(1..) {
            word.store(value, Ordering::Relaxed);
        }
        let mut copy = [0; 514];
        copy_out(&page.words()[512..], &mut copy[1..513]);
        assert!(copy[1..513].iter().copied().eq(513..1025));
        assert_eq!((copy[0], copy[513]), (0, 0));
        assert_eq!(page.words().as_ptr().addr() % PAGE_BYTES as usize, 0);
    }

    #[test]
    fn one_other_word_makes_a_torn_read() {
        let page = Aligned::<AtomicU64>::new(512);
        fill(page.words(), 7);
        let mut copy = [0; 512];
        copy_out(page.words(), &mut copy);
        assert_eq!(torn(&copy), None);
        copy[511] = 8;
        assert_eq!(torn(&copy), Some((7, 8)));
        fill(&page.words()[..3], 9);
        copy_out(page.words(), &mut copy);
        assert_eq!(torn(&copy), Some((9, 7)));
    }

    #[test]
    fn bytes_are_those_of_the_words() {
        let mut words = [0, u64::MAX];
        bytes_of(&mut words)[..8].copy_from_slice(&5_u64.to_ne_bytes());
        assert_eq!(words, [5, u64::MAX]);
    }
}
