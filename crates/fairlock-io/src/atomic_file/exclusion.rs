//! Who waits for whom: turns a file and a lock over its bytes into one that behaves as if its
//! operations were executed one after the other.
//!
//! Three things together keep operations apart:
//!
//! * `ranges`, a range lock over positions. It protects the bytes below the end.
//! * `end`, a mutex. Whoever may change the length holds it, from before to after.
//! * `length`, a word that everybody may read at any time, and that only the holder of `end` writes.
//!
//! | operation | `ranges` | then `end` |
//! |---|---|---|
//! | read | shares all that it asks for | |
//! | write below the end | takes what it writes | |
//! | write across the end | takes what it writes | holds |
//! | append, write beyond the end, growth | | holds |
//! | cut | takes the new length and all beyond | holds |
//! | length, read from the end on | | |
//!
//! Invariants
//! 1. `length` is the length of the file, except for who holds `end`.
//! 2. Bytes from `length` on are touched by the holder of `end` alone. They are complete when
//!    `length` comes to cover them, which is the last step of an operation that makes the file longer.
//! 3. Bytes below `length` are read and written by holders of their positions alone, and `length`
//!    becomes smaller only while all positions that it uncovers are held. So who holds a position
//!    and *then* finds it covered has it covered until it is released.
//! 4. Nobody waits for a range while holding `end`. So the two never wait for each other, and `end` is
//!    held for as long as its holder's own system calls take, whoever reads or writes how slowly.
//!
//! # Why this is right
//! Each operation takes effect in one moment between its call and its return: changes of the length
//! when they write `length`; other writes at any time while they hold their range; reads when they
//! load `length`, once they hold their range. A read then returns the bytes from its offset up to
//! that length. They are as they were in that moment: those who would change them need a part of the
//! range that the read holds (3), and the length that it saw is not the sum of several moments.
//!
//! So a read that reaches across the end waits for no append, and no append waits for it: the read
//! sees the length before or after, and in neither case a byte of which only a part is there (2).
//! A read that begins at the end or beyond has nothing to protect and is a load of `length`.
//!
//! The orders agree: an operation that has seen the effect of another, by a range, by `end` or by
//! `length`, has synchronized with it and so loads a `length` at least as new as the other did.
//!
//! # A length that changes before `end` is held
//! What kind an operation is depends on the length, and whether it needs a range has to be known
//! before it holds `end` (4). It guesses from `length` as it is, and looks again under `end`. A range
//! that turns out not to be needed does no harm. If one is needed that is not held, because the file
//! has become longer meanwhile, the operation gives `end` back, takes the range, and then `end`
//! again: now it has what it needs, whatever the length is by then, so this happens once.
//!
//! A write that begins below the end takes all that it writes, not only what is below the end now: what
//! appends add while it waits is then held as well. The part beyond the end keeps nobody else out: who
//! holds or wants a range there wants the last byte, too, unless a cut has just moved the end.
//!
//! # How long a cut waits
//! First for its range, as [`RangeLock`] promises: for the reads, writes and cuts of what it removes that
//! were there before it, and for each of those writes and cuts at most once for reads that pass it. Later
//! ones wait behind it. Then for `end`, as [`Mutex`](fairlock::Mutex) promises: for the changes of the
//! length that wait already; once it is the oldest and has waited for 4 ms, it is next. Appends need no
//! range, so no stream of them keeps the range from the cut, and reads do not need `end`.
//!
//! While a cut waits for its range, appends go on. They come before it, and it removes what they append.
//! While it holds `end`, for one ftruncate(2), appends wait, and have to: an append goes where the
//! file ends, and that is what the cut changes.

use std::io::{self, ErrorKind};
use std::ops::RangeBounds;
use std::sync::atomic::Ordering::{Acquire, Release};

use fairlock::Mutex;
use fairlock::RangeLock;
use fairlock::platform::{AtomicCell, Os, Platform};
use fairlock::range::{Extent, RawRangeLock};

use super::error::Failure;
use super::raw_file::{LAST_OFFSET, RawFile};
use super::transfer::{self, Cut, Source, Target};

/// On cache lines that nothing else is on: appends write these words, and reads of what is beside
/// them should not notice.
#[repr(align(128))]
struct OwnLine<T>(T);

/// See the [module](self).
pub(crate) struct Exclusive<F, L, P: Platform = Os> {
    file: F,
    ranges: L,
    length: OwnLine<P::AtomicU64>,
    end: OwnLine<Mutex<(), P>>,
}

impl<F: RawFile, R: RawRangeLock, P: Platform> Exclusive<F, RangeLock<R>, P> {
    pub(crate) fn new(file: F) -> io::Result<Self> {
        let length = P::AtomicU64::new(file.len()?);
        let ranges = RangeLock::new_in();
        Ok(Exclusive { file, ranges, length: OwnLine(length), end: OwnLine(Mutex::new_in(())) })
    }

    /// As many bytes as fit, fewer only at the end.
    #[inline]
    pub(crate) fn read<T: Target + ?Sized>(
        &self,
        target: &mut T,
        offset: u64,
    ) -> Result<usize, Failure> {
        let size = known(target.size(), offset)?;
        if size == 0 {
            return Ok(0);
        }
        if offset > LAST_OFFSET {
            return Err(beyond_all_files(offset));
        }
        if offset >= self.len() {
            return Ok(0);
        }
        let _held = self.ranges.read(extent(offset..offset + size as u64));
        // In this order: invariant 3.
        let there = self.len().saturating_sub(offset).min(size as u64) as usize;
        match transfer::read(&self.file, target, offset, there) {
            Ok(()) => Ok(there),
            Err(Cut { done, source }) => Err(Failure { offset, done, source }),
        }
    }

    /// All of it.
    #[inline]
    pub(crate) fn write<S: Source + ?Sized>(&self, source: &S, offset: u64) -> Result<(), Failure> {
        let size = known(source.size(), offset)?;
        if size == 0 {
            return Ok(());
        }
        let end = end_of(offset, size)?;
        if offset < self.len() {
            let _held = self.ranges.write(extent(offset..end));
            // In this order: invariant 3.
            if end <= self.len() {
                return transfer::write(&self.file, source, offset, size)
                    .map_err(|Cut { done, source }| Failure { offset, done, source });
            }
            let _end = self.end.0.lock();
            return self.write_and_publish(source, offset, size);
        }
        self.write_beyond(source, offset, size)
    }

    fn write_beyond<S: Source + ?Sized>(
        &self,
        source: &S,
        offset: u64,
        size: usize,
    ) -> Result<(), Failure> {
        let end = self.end.0.lock();
        if offset >= self.len() {
            return self.write_and_publish(source, offset, size);
        }
        drop(end);
        // The file has become longer; see the module. In this order: invariant 4.
        let _held = self.ranges.write(extent(offset..offset + size as u64));
        let _end = self.end.0.lock();
        self.write_and_publish(source, offset, size)
    }

    /// By the holder of `end` and of what is below the end of these positions.
    fn write_and_publish<S: Source + ?Sized>(
        &self,
        source: &S,
        offset: u64,
        size: usize,
    ) -> Result<(), Failure> {
        let outcome = transfer::write(&self.file, source, offset, size);
        let done = outcome.as_ref().map_or_else(|cut| cut.done, |()| size);
        if done > 0 {
            self.publish(self.len().max(offset + done as u64));
        }
        outcome.map_err(|Cut { done, source }| Failure { offset, done, source })
    }

    /// Writes all of it at the end, or nothing; returns where.
    pub(crate) fn append<S: Source + ?Sized>(&self, source: &S) -> Result<u64, Failure> {
        let size = known(source.size(), self.len())?;
        if size == 0 {
            return Ok(self.len());
        }
        let _end = self.end.0.lock();
        let offset = self.len();
        let end = end_of(offset, size)?;
        match transfer::write(&self.file, source, offset, size) {
            Ok(()) => {
                self.publish(end);
                Ok(offset)
            }
            Err(Cut { done, source }) => {
                let left = if done > 0 { self.undo_append(offset, done) } else { 0 };
                Err(Failure { offset, done: left, source })
            }
        }
    }

    /// Removes the first part of an append, which nobody has seen. How much of it is left.
    #[cold]
    fn undo_append(&self, offset: u64, done: usize) -> usize {
        if self.file.set_len(offset).is_ok() {
            return 0;
        }
        self.publish(offset + done as u64);
        done
    }

    /// Cuts the file, or lets it grow by zeros.
    pub(crate) fn set_len(&self, new: u64) -> Result<(), Failure> {
        if new > LAST_OFFSET {
            return Err(beyond_all_files(new));
        }
        if new >= self.len() {
            let end = self.end.0.lock();
            if new >= self.len() {
                return self.set_len_and_publish(new);
            }
            // The file has become longer; see the module.
            drop(end);
        }
        // In this order: invariant 4. Appends go on while this waits for readers.
        let _held = self.ranges.write(extent(new..));
        let _end = self.end.0.lock();
        self.set_len_and_publish(new)
    }

    /// By the holder of `end`, and of what this removes.
    fn set_len_and_publish(&self, new: u64) -> Result<(), Failure> {
        let old = self.len();
        match self.file.set_len(new) {
            Ok(()) => {
                self.publish(new);
                Ok(())
            }
            Err(source) => {
                // A file system may have got half way before it failed.
                if let Ok(length) = self.file.len() {
                    self.publish(length.clamp(old.min(new), old.max(new)));
                }
                Err(Failure { offset: new, done: 0, source })
            }
        }
    }
}

impl<F, L, P: Platform> Exclusive<F, L, P> {
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        // Pairs with `publish`: who sees the length also sees the bytes that it covers.
        self.length.0.load(Acquire)
    }

    /// By the holder of `end`, who holds all positions that this uncovers (invariant 3).
    fn publish(&self, length: u64) {
        self.length.0.store(length, Release);
    }

    pub(crate) fn file(&self) -> &F {
        &self.file
    }

    /// To see who waits.
    #[cfg(test)]
    pub(crate) fn ranges(&self) -> &L {
        &self.ranges
    }

    pub(crate) fn into_file(self) -> F {
        self.file
    }
}

/// Of a range that is not empty.
#[inline]
fn extent(bytes: impl RangeBounds<u64>) -> Extent {
    Extent::of(bytes).expect("there is at least one byte")
}

#[inline]
fn known(size: Option<usize>, offset: u64) -> Result<usize, Failure> {
    size.ok_or_else(|| {
        let message = "the slices together have more bytes than there can be";
        Failure { offset, done: 0, source: io::Error::new(ErrorKind::InvalidInput, message) }
    })
}

#[inline]
fn end_of(offset: u64, size: usize) -> Result<u64, Failure> {
    match offset.checked_add(size as u64) {
        Some(end) if end <= LAST_OFFSET => Ok(end),
        _ => Err(beyond_all_files(offset)),
    }
}

#[cold]
fn beyond_all_files(offset: u64) -> Failure {
    let message = format!("no file reaches beyond byte {LAST_OFFSET}");
    Failure { offset, done: 0, source: io::Error::new(ErrorKind::InvalidInput, message) }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use super::super::faulty::Fault::{Fails, Short, Whole};
    use super::super::faulty::FaultyFile;
    use super::super::raw_file::SLICES_PER_CALL;
    use super::*;

    type File = Exclusive<FaultyFile, RangeLock>;

    const DIGITS: &[u8] = b"0123456789";

    fn digits() -> File {
        Exclusive::new(FaultyFile::of(DIGITS)).unwrap()
    }

    /// The file itself, once it is sure that its length is the one that users see.
    fn bytes(file: &File) -> Vec<u8> {
        let bytes = file.file.bytes();
        assert_eq!(file.len(), bytes.len() as u64, "invariant 1");
        bytes
    }

    fn assert_free(file: &File) {
        assert!(file.ranges.try_write(Extent::ALL).is_some(), "a range is still held");
        assert!(file.end.0.try_lock().is_some(), "the end is still held");
    }

    #[track_caller]
    fn assert_failed<T>(outcome: Result<T, Failure>, done: usize, number: i32) {
        let failure = outcome.err().expect("it fails");
        assert_eq!((failure.done, failure.source.raw_os_error()), (done, Some(number)));
    }

    #[track_caller]
    fn assert_refused<T>(outcome: Result<T, Failure>, message: &str) {
        let source = outcome.err().expect("it is refused").source;
        assert_eq!(source.kind(), ErrorKind::InvalidInput);
        assert!(source.to_string().contains(message), "{source}");
    }

    #[test]
    fn a_read_is_short_at_the_end_only() {
        let file = digits();
        let mut buffer = [0; 6];
        assert!(matches!(file.read(&mut buffer[..], 2), Ok(6)));
        assert_eq!(&buffer, b"234567");
        assert!(matches!(file.read(&mut buffer[..], 7), Ok(3)));
        assert_eq!(&buffer[..3], b"789");
        file.file.expect(&[]);
        assert!(matches!(file.read(&mut buffer[..], 10), Ok(0)));
        assert!(matches!(file.read(&mut buffer[..], 11), Ok(0)));
        assert_eq!(file.file.calls(), [], "what lies beyond the end needs no call");
    }

    #[test]
    fn interrupted_and_short_reads_go_on_where_they_were() {
        let file = digits();
        let mut buffer = [0; 8];
        file.file.expect(&[Fails(libc::EINTR), Short(3), Fails(libc::EINTR), Short(1), Whole]);
        assert!(matches!(file.read(&mut buffer[..], 1), Ok(8)));
        assert_eq!(&buffer, b"12345678");
        assert_eq!(file.file.calls()[2..], [("read", 4, 5), ("read", 4, 5), ("read", 5, 4)]);
        assert_free(&file);
    }

    #[test]
    fn a_read_that_fails_half_way_says_how_far_it_came() {
        let file = digits();
        file.file.expect(&[Short(3), Fails(libc::EIO)]);
        assert_failed(file.read(&mut [0; 8][..], 1), 3, libc::EIO);
        assert_free(&file);
    }

    #[test]
    fn a_file_that_somebody_else_cut_is_an_error_not_a_short_read() {
        let file = digits();
        file.file.set_len(4).unwrap();
        let failure = file.read(&mut [0; 8][..], 1).err().unwrap();
        assert_eq!((failure.done, failure.source.kind()), (3, ErrorKind::UnexpectedEof));
        assert!(failure.source.to_string().contains("somebody else"));
    }

    #[test]
    fn interrupted_and_short_writes_go_on_where_they_were() {
        for (offset, wanted) in
            [(1, &b"0abcdefgh9"[..]), (5, b"01234abcdefgh"), (12, b"0123456789\0\0abcdefgh")]
        {
            let file = digits();
            file.file.expect(&[Fails(libc::EINTR), Short(3), Fails(libc::EINTR), Short(1), Whole]);
            assert!(file.write(&b"abcdefgh"[..], offset).is_ok());
            assert_eq!(bytes(&file), wanted);
            file.file.calls();
            assert_free(&file);
        }
    }

    #[test]
    fn a_write_that_fails_half_way_is_one_of_its_first_bytes() {
        for (offset, wanted) in
            [(1, &b"0abc456789"[..]), (8, b"01234567abc"), (12, b"0123456789\0\0abc")]
        {
            let file = digits();
            file.file.expect(&[Short(3), Fails(libc::ENOSPC)]);
            assert_failed(file.write(&b"abcdefgh"[..], offset), 3, libc::ENOSPC);
            assert_eq!(bytes(&file), wanted);
            assert_free(&file);
        }
    }

    #[test]
    fn a_write_that_fails_at_once_leaves_everything_as_it_was() {
        for offset in [1, 8, 12] {
            let file = digits();
            file.file.expect(&[Fails(libc::EFBIG)]);
            assert_failed(file.write(&b"abcdefgh"[..], offset), 0, libc::EFBIG);
            assert_eq!(bytes(&file), DIGITS);
        }
    }

    #[test]
    fn a_system_that_takes_no_bytes_and_gives_no_reason_does_not_hang_us() {
        let file = digits();
        file.file.expect(&[Short(2), Short(0)]);
        let failure = file.write(&b"abcdefgh"[..], 0).err().unwrap();
        assert_eq!((failure.done, failure.source.kind()), (2, ErrorKind::WriteZero));
        assert_eq!(bytes(&file), b"ab23456789");
    }

    #[test]
    fn appends_say_where_they_are() {
        let file = digits();
        file.file.expect(&[Short(1), Fails(libc::EINTR)]);
        assert!(matches!(file.append(&b"abc"[..]), Ok(10)));
        assert!(matches!(file.append(&[IoSlice::new(b"d"), IoSlice::new(b"ef")][..]), Ok(13)));
        assert_eq!(bytes(&file), b"0123456789abcdef");
        assert_free(&file);
    }

    #[test]
    fn a_failed_append_is_removed() {
        let file = digits();
        file.file.expect(&[Short(3), Fails(libc::ENOSPC), Whole]);
        assert_failed(file.append(&b"abcdefgh"[..]), 0, libc::ENOSPC);
        assert_eq!(file.file.calls()[2], ("set_len", 10, 0));
        assert_eq!(bytes(&file), DIGITS);
        assert!(matches!(file.append(&b"abc"[..]), Ok(10)), "and the next one takes its place");
    }

    #[test]
    fn a_failed_append_that_cannot_be_removed_is_admitted() {
        let file = digits();
        file.file.expect(&[Short(3), Fails(libc::EIO), Fails(libc::EIO)]);
        assert_failed(file.append(&b"abcdefgh"[..]), 3, libc::EIO);
        assert_eq!(bytes(&file), b"0123456789abc");
        assert_free(&file);
    }

    #[test]
    fn the_length_is_set_both_ways() {
        let file = digits();
        assert!(file.set_len(4).is_ok());
        assert_eq!(bytes(&file), b"0123");
        assert!(file.set_len(6).is_ok());
        assert_eq!(bytes(&file), b"0123\0\0");
        assert!(file.set_len(6).is_ok());
        assert_eq!(bytes(&file), b"0123\0\0");
        assert_free(&file);
    }

    #[test]
    fn a_length_that_cannot_be_set_stays() {
        let file = digits();
        for length in [4, 12] {
            file.file.expect(&[Fails(libc::EIO)]);
            assert_failed(file.set_len(length), 0, libc::EIO);
            assert_eq!(bytes(&file), DIGITS);
        }
        assert_free(&file);
    }

    #[test]
    fn slices_go_on_inside_a_slice_after_a_short_call() {
        let file = digits();
        let slices = [b"ab", &b""[..], b"cde", b"f"].map(IoSlice::new);
        file.file.expect(&[Short(3), Fails(libc::EINTR), Whole]);
        assert!(file.write(&slices[..], 6).is_ok());
        assert_eq!(bytes(&file), b"012345abcdef");

        let (mut first, mut second) = ([0; 2], [0; 5]);
        let mut buffers =
            [IoSliceMut::new(&mut first), IoSliceMut::new(&mut []), IoSliceMut::new(&mut second)];
        file.file.expect(&[Short(1), Short(3), Whole]);
        assert!(matches!(file.read(&mut buffers[..], 3), Ok(7)));
        assert_eq!(buffers.map(|buffer| buffer.len()), [2, 0, 5], "the caller's list is as it was");
        assert_eq!((&first, &second), (b"34", b"5abcd"));
    }

    #[test]
    fn more_slices_than_the_kernel_takes_are_one_write() {
        let file = digits();
        let words: Vec<String> = (0..3 * SLICES_PER_CALL).map(|word| word.to_string()).collect();
        // The empty ones alone would fill more than a call, with nothing in it.
        let empty = vec![IoSlice::new(&[]); SLICES_PER_CALL + 1];
        let full = words.iter().map(|word| IoSlice::new(word.as_bytes()));
        let slices: Vec<_> = empty.into_iter().chain(full).collect();
        assert!(file.write(&slices[..], 0).is_ok());
        assert_eq!(bytes(&file), words.concat().as_bytes());
        assert_eq!(file.file.calls().len(), 3);

        let mut single = vec![[0]; words.concat().len()];
        let mut buffers: Vec<_> = single.iter_mut().map(|byte| IoSliceMut::new(byte)).collect();
        assert!(file.read(&mut buffers[..], 0).is_ok());
        assert_eq!(single.concat(), words.concat().as_bytes());
    }

    #[test]
    fn nothing_is_read_and_written_everywhere_even_where_everything_is_held() {
        let file = digits();
        let _end = file.end.0.lock();
        let _held = file.ranges.write(Extent::ALL);
        for offset in [0, 10, 99, u64::MAX] {
            assert!(matches!(file.read(&mut [][..] as &mut [u8], offset), Ok(0)));
            assert!(file.write(&b""[..], offset).is_ok());
        }
        assert!(matches!(file.append(&b""[..]), Ok(10)));
        assert_eq!(file.file.calls(), []);
    }

    #[test]
    fn offsets_that_no_file_has_are_refused() {
        let file = digits();
        let message = "beyond byte 9223372036854775807";
        assert_refused(file.read(&mut [0][..], LAST_OFFSET + 1), message);
        assert_refused(file.write(&b"ab"[..], LAST_OFFSET - 1), message);
        assert_refused(file.write(&b"ab"[..], u64::MAX), message);
        assert_refused(file.set_len(LAST_OFFSET + 1), message);
        assert!(matches!(file.read(&mut [0; 2][..], LAST_OFFSET), Ok(0)), "nothing is there");
        assert_eq!(file.file.calls(), []);
        assert_free(&file);
    }

    #[test]
    fn appends_and_what_is_below_the_end_do_not_wait_for_each_other() {
        let file = digits();
        let below = file.ranges.write(extent(..10));
        assert!(matches!(file.append(&b"ab"[..]), Ok(10)));
        assert!(matches!(file.read(&mut [0; 4][..], 10), Ok(2)));
        assert!(file.write(&b"cd"[..], 12).is_ok(), "beyond what is held");
        drop(below);
        let _end = file.end.0.lock();
        assert!(matches!(file.read(&mut [0; 20][..], 0), Ok(14)), "across the end");
        assert!(file.write(&b"z"[..], 13).is_ok());
    }
}
