//! The lock word of [`ProcessSharedRwLock`](super::ProcessSharedRwLock): its layout, a name for
//! every condition on it, and how each operation changes it. Everything here is pure: nothing waits
//! or has an effect.

/// Bits 0 to 17: readers that hold the lock.
const READERS: u64 = (1 << 18) - 1;
const READER: u64 = 1;
/// Bits 18 to 35: readers that wait.
const WAITING: u64 = READERS << 18;
const WAITING_READER: u64 = 1 << 18;
/// Bits 36 to 46: writers that wait in the front, the batch whose turn is next.
const FRONT: u64 = WRITERS_OF_A_BATCH << 36;
const FRONT_WRITER: u64 = 1 << 36;
/// Bits 47 to 57: writers that wait in the back, the batch after the front.
const BACK: u64 = WRITERS_OF_A_BATCH << 47;
const BACK_WRITER: u64 = 1 << 47;
/// Bits 58 and 59: how often the lock was granted to the waiting readers, modulo 4.
const GRANTS: u64 = 3 << 58;
const GRANT: u64 = 1 << 58;
/// Bits 60 and 61: how often the waiting readers were woken to acquire the lock themselves, modulo
/// 4.
const WAKES: u64 = 3 << 60;
const WAKE: u64 = 1 << 60;
/// Bit 62: which of the two batches is the front.
const BATCH: u64 = 1 << 62;
/// Bit 63: a writer holds the lock.
const WRITER: u64 = 1 << 63;

/// Writers that fit one batch: 2,047. With the counts of readers, this is how 64 bits were divided.
const WRITERS_OF_A_BATCH: u64 = (1 << 11) - 1;

/// Readers that may hold the lock or wait for it, together: 262,143. Waiting readers count, too, as
/// all of them may be granted the lock at once.
pub(super) const MOST_READERS: u64 = READERS;

/// One of the two batches of waiting writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch(pub(super) usize);

/// Who is granted the lock by an unlock, and has to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Successor {
    /// The lock is free, or other readers still hold it.
    Nobody,
    /// All waiting readers.
    Readers,
    /// One writer of this batch.
    Writer(Batch),
}

/// A value of the lock word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    // ---- conditions ----

    pub(super) fn readers(self) -> u64 {
        self.0 & READERS
    }

    pub(super) fn waiting_readers(self) -> u64 {
        (self.0 & WAITING) / WAITING_READER
    }

    pub(super) fn has_writer(self) -> bool {
        self.0 & WRITER != 0
    }

    pub(super) fn writers_wait(self) -> bool {
        self.0 & (FRONT | BACK) != 0
    }

    /// A writer holds the lock alone; and while none does, writers wait only while readers hold it,
    /// and the front is not empty if the back is not (invariants 1 to 3).
    pub(super) fn is_consistent(self) -> bool {
        self.has_writer() && self.readers() == 0
            || !self.has_writer()
                && (self.0 & FRONT != 0 && self.readers() > 0 || !self.writers_wait())
    }

    /// A writer may acquire the lock. It passes nobody but readers that have been woken and not run
    /// yet.
    pub(super) fn is_free(self) -> bool {
        self.0 & (WRITER | FRONT | BACK | READERS) == 0
    }

    /// A newcomer may read now.
    pub(super) fn admits_reader(self, past_waiters: bool) -> bool {
        !self.has_writer() && (past_waiters || !self.writers_wait())
    }

    /// No more readers can be counted.
    pub(super) fn is_full(self) -> bool {
        self.readers() + self.waiting_readers() >= MOST_READERS
    }

    /// The reader that began to wait at `queued` has been granted the lock. As it then holds the
    /// lock, there is no further grant before it knows, so two bits are enough to tell before from
    /// after.
    pub(super) fn has_granted(self, queued: Word) -> bool {
        (self.0 ^ queued.0) & GRANTS != 0
    }

    /// The reader that began to wait at `queued`, and has not been granted the lock, may acquire it
    /// itself.
    pub(super) fn admits_waiting(self, queued: Word, past_waiters: bool) -> bool {
        let woken = (self.0 ^ queued.0) & WAKES != 0;
        self.admits_reader(past_waiters || woken)
    }

    /// Grants so far, modulo 4.
    pub(super) fn grants(self) -> u32 {
        ((self.0 & GRANTS) / GRANT) as u32
    }

    /// The count must not carry into the field above.
    fn next_grant(self) -> Word {
        Word(self.0 & !GRANTS | (self.0 + GRANT) & GRANTS)
    }

    fn next_wake(self) -> Word {
        Word(self.0 & !WAKES | (self.0 + WAKE) & WAKES)
    }

    fn front(self) -> Batch {
        Batch(usize::from(self.0 & BATCH != 0))
    }

    // ---- readers ----

    pub(super) fn with_reader(self) -> Word {
        Word(self.0 + READER)
    }

    pub(super) fn with_waiting_reader(self) -> Word {
        Word(self.0 + WAITING_READER)
    }

    pub(super) fn without_waiting_reader(self) -> Word {
        Word(self.0 - WAITING_READER)
    }

    /// A reader releases the lock. The last one hands it to the first writer.
    pub(super) fn after_read(self) -> (Word, Successor) {
        debug_assert!(self.readers() > 0 && !self.has_writer(), "nobody reads: {self:?}");
        let left = Word(self.0 - READER);
        match left.readers() == 0 && left.writers_wait() {
            true => left.for_first_writer(),
            false => (left, Successor::Nobody),
        }
    }

    // ---- writers ----

    pub(super) fn with_writer(self) -> Word {
        Word(self.0 | WRITER)
    }

    /// A writer queues and learns its batch. None if that batch is full.
    ///
    /// It joins the front only if the front is empty and no writer holds the lock: a writer that
    /// does may have been handed the lock as one of the front, and not have noticed yet.
    pub(super) fn with_waiting_writer(self) -> Option<(Word, Batch)> {
        if !self.has_writer() && !self.writers_wait() {
            return Some((Word(self.0 + FRONT_WRITER), self.front()));
        }
        let back = Batch(1 - self.front().0);
        (self.0 & BACK != BACK).then(|| (Word(self.0 + BACK_WRITER), back))
    }

    /// A writer gives up. None if it has been handed the lock. True if the waiting readers have to
    /// be woken, as it was the last of the front.
    pub(super) fn without_waiting_writer(self, batch: Batch) -> Option<(Word, bool)> {
        if batch != self.front() {
            return Some((Word(self.0 - BACK_WRITER), false));
        }
        if self.0 & FRONT == 0 {
            return None;
        }
        let left = Word(self.0 - FRONT_WRITER);
        if left.has_writer() || left.0 & FRONT != 0 {
            return Some((left, false));
        }
        let left = left.with_front();
        match left.waiting_readers() > 0 {
            true => Some((left.next_wake(), true)),
            false => Some((left, false)),
        }
    }

    /// A writer releases the lock: to all waiting readers, or, if there are none, to the first
    /// writer.
    pub(super) fn after_write(self) -> (Word, Successor) {
        debug_assert!(self.has_writer() && self.readers() == 0, "nobody writes: {self:?}");
        let left = Word(self.0 & !WRITER).with_front();
        let waiting = left.waiting_readers();
        if waiting > 0 {
            return (
                Word(left.0 - waiting * WAITING_READER + waiting).next_grant(),
                Successor::Readers,
            );
        }
        match left.writers_wait() {
            true => left.for_first_writer(),
            false => (left, Successor::Nobody),
        }
    }

    /// The back moves up if the front is empty. Only while no writer holds the lock, or as one
    /// releases it.
    fn with_front(self) -> Word {
        let back = (self.0 & BACK) / BACK_WRITER;
        match self.0 & FRONT == 0 && back > 0 {
            true => Word((self.0 ^ BATCH) - back * BACK_WRITER + back * FRONT_WRITER),
            false => self,
        }
    }

    fn for_first_writer(self) -> (Word, Successor) {
        debug_assert!(self.0 & FRONT != 0, "the front moves up: {self:?}");
        (Word((self.0 - FRONT_WRITER) | WRITER), Successor::Writer(self.front()))
    }
}

impl core::fmt::Debug for Word {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Word")
            .field("readers", &self.readers())
            .field("waiting", &self.waiting_readers())
            .field("writer", &self.has_writer())
            .field("front", &((self.0 & FRONT) / FRONT_WRITER))
            .field("back", &((self.0 & BACK) / BACK_WRITER))
            .field("batch", &self.front().0)
            .field("grants", &self.grants())
            .field("wakes", &((self.0 & WAKES) / WAKE))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Word = Word(0);

    fn queue(word: Word) -> (Word, Batch) {
        word.with_waiting_writer().expect("the batch is not full")
    }

    /// As many wait behind a writer as can, and the small counts are about to wrap.
    fn crowded() -> Word {
        let fields = WRITER | FRONT | BACK | (MOST_READERS * WAITING_READER) | GRANTS | WAKES;
        Word(fields | BATCH)
    }

    #[test]
    fn full_fields_do_not_run_into_each_other() {
        let word = crowded();
        assert!(word.is_full() && word.with_waiting_writer().is_none());
        let (reads, successor) = word.after_write();
        assert_eq!(successor, Successor::Readers);
        assert_eq!(reads.0, BATCH | WAKES | FRONT | BACK | MOST_READERS);
        let (last, _) = Word(reads.0 - MOST_READERS + READER).after_read();
        assert_eq!(last.0, BATCH | WAKES | (FRONT - FRONT_WRITER) | BACK | WRITER);
    }

    #[test]
    fn wake_ups_of_readers_wrap_their_count_alone() {
        let word = Word(BATCH | GRANTS | WAKES | FRONT_WRITER | BACK | WAITING_READER | READER);
        let (left, wakes) = word.without_waiting_writer(Batch(1)).expect("nothing was handed over");
        assert!(wakes);
        assert_eq!(left.0, GRANTS | FRONT | WAITING_READER | READER);
    }

    #[test]
    fn a_reader_that_queues_between_a_grant_and_its_wake_up_waits_for_the_next_grant() {
        let writes = FREE.with_writer();
        let (reads, successor) = writes.with_waiting_reader().after_write();
        assert_eq!((reads.readers(), successor), (1, Successor::Readers));
        assert!(reads.has_granted(writes));
        let (waits, _) = queue(reads);
        let newcomer = waits.with_waiting_reader();
        assert!(!newcomer.has_granted(newcomer) && !newcomer.admits_waiting(newcomer, false));
    }

    #[test]
    fn the_first_writer_is_alone_in_front_and_the_back_moves_up_after_it() {
        let (first, front) = queue(FREE.with_reader());
        let (second, back) = queue(first);
        assert_ne!(front, back);
        let (writes, successor) = second.after_read();
        assert_eq!(successor, Successor::Writer(front));
        assert_eq!(queue(writes).1, back, "the front may not know yet that it writes");
        let (handed, successor) = writes.after_write();
        assert_eq!(successor, Successor::Writer(back));
        assert_eq!(handed.0, WRITER | BATCH);
        assert_eq!(handed.after_write(), (Word(BATCH), Successor::Nobody));
    }

    #[test]
    fn the_last_writer_that_was_handed_the_lock_cannot_give_up() {
        let (one, front) = queue(FREE.with_reader());
        let (handed, _) = one.after_read();
        assert_eq!(handed.without_waiting_writer(front), None);
        let (behind, back) = queue(handed);
        assert_eq!(behind.without_waiting_writer(back), Some((handed, false)));
    }

    #[test]
    fn readers_wait_behind_a_writer_that_gives_up_only_while_it_waits() {
        let (waits, front) = queue(FREE.with_reader());
        let queued = waits.with_waiting_reader();
        assert!(!queued.admits_waiting(queued, false) && queued.admits_waiting(queued, true));
        let (next, back) = queue(queued);
        let (woken, wakes) = next.without_waiting_writer(front).expect("nothing was handed over");
        assert!(wakes && woken.writers_wait());
        assert!(woken.admits_waiting(queued, false), "past the writer that moves up");
        let (again, _) = woken.without_waiting_writer(back).expect("nothing was handed over");
        assert!(again.admits_reader(false));
        assert!(!woken.admits_reader(false), "not so a newcomer");
    }
}
