//! Counts the instructions that an uncontended lock and unlock execute, of [`RwSem`], of a read of
//! [`RwLock`], of a shared range of [`RangeLock`], and of the same algorithms written by hand on std's atomics: the platform seam must
//! cost nothing.
//!
//! The processor's trap flag stops the program after each instruction, so the counts are exact,
//! need no tool and no privilege. The test suite runs this in a release build.
//!
//! ```text
//! cargo run --release -p fairlock --example instruction_count
//! ```
//!
//! Where callgrind is installed it tells the same by function:
//! `valgrind --tool=callgrind --toggle-collect=read_fairlock target/release/examples/instruction_count plain`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() {
    counted::main();
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("not counted here: only on x86-64 Linux");
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod counted {
    use std::cell::Cell;
    use std::ptr;
    use std::sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        compiler_fence,
    };

    use fairlock::platform::{Os, Platform};
    use fairlock::range::{Extent, RangeLock};
    use fairlock::{RwLock, RwSem};

    /// The fast paths as one would write them without a seam: the same word, the same owner.
    struct ByHand {
        word: AtomicU64,
        owner_cpu: AtomicU32,
    }

    const READER_LIMIT: u64 = 1 << 22;
    const WRITER: u64 = 1 << 23;

    /// Where a thread would wait. It returns, so that callers must keep what they still need.
    #[cold]
    #[inline(never)]
    fn lock_slowly(lock: &ByHand, writer: bool) {
        eprintln!("nobody else uses {:?}, writer: {writer}", lock.word);
    }

    /// Where the next one would be woken; it is told what the release has left behind.
    #[cold]
    #[inline(never)]
    fn unlock_slowly(lock: &ByHand, writer: bool, left: u64) {
        eprintln!("nobody else uses {:?}, writer: {writer}, {left}", lock.word);
    }

    impl ByHand {
        #[inline]
        fn lock_read(&self) {
            let word = self.word.load(Relaxed);
            let fast = word < READER_LIMIT - 1
                && self.word.compare_exchange_weak(word, word + 1, Acquire, Relaxed).is_ok();
            if !fast {
                lock_slowly(self, false);
            }
        }

        #[inline]
        fn unlock_read(&self) {
            let word = self.word.fetch_sub(1, Release);
            if word >= READER_LIMIT {
                unlock_slowly(self, false, word - 1);
            }
        }

        #[inline]
        fn lock_write(&self) {
            if self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok() {
                self.owner_cpu.store(Os::cpu(), Relaxed);
            } else {
                lock_slowly(self, true);
            }
        }

        #[inline]
        fn unlock_write(&self) {
            let word = self.word.fetch_sub(WRITER, Release);
            if word != WRITER {
                unlock_slowly(self, true, word - WRITER);
            }
        }
    }

    /// A lock whose readers use slots without fences, as far as they are concerned.
    struct SlotsByHand {
        bias: AtomicU64,
    }

    const LIGHT: u64 = 2;

    /// The first of a thread's slots.
    struct Slot {
        tag: AtomicU64,
        awaited: AtomicU32,
    }

    /// The only thread's.
    static OWN: Slot = Slot { tag: AtomicU64::new(0), awaited: AtomicU32::new(0) };

    std::thread_local! {
        static SLOT: Cell<*const Slot> = const { Cell::new(ptr::null()) };
    }

    /// Where a thread gets its slots, at its first read.
    #[cold]
    #[inline(never)]
    fn claim_slot() -> Option<&'static Slot> {
        SLOT.set(&OWN);
        Some(&OWN)
    }

    #[inline(always)]
    fn own_slot() -> Option<&'static Slot> {
        // SAFETY: null or this thread's, which lives as long as the program.
        unsafe { SLOT.get().as_ref() }.or_else(claim_slot)
    }

    /// Where a thread without a slot would read.
    #[cold]
    #[inline(never)]
    fn read_without_slot(lock: &SlotsByHand) -> Option<&'static Slot> {
        eprintln!("nobody else uses {:?}", lock.bias);
        None
    }

    /// Where that is undone.
    #[cold]
    #[inline(never)]
    fn unlock_without_slot(lock: &SlotsByHand) {
        eprintln!("nobody else uses {:?}", lock.bias);
    }

    #[cold]
    #[inline(never)]
    fn tell_writers(slot: &Slot) {
        eprintln!("nobody waits for {:?}", slot.tag);
    }

    impl SlotsByHand {
        #[inline]
        fn lock_read(&self) -> Option<&'static Slot> {
            let bias = self.bias.load(Relaxed);
            if bias & LIGHT != 0 {
                if let Some(slot) = own_slot() {
                    if slot.tag.load(Relaxed) == 0 {
                        slot.tag.store(bias, Relaxed);
                        compiler_fence(SeqCst);
                        if self.bias.load(Acquire) == bias {
                            return Some(slot);
                        }
                        Self::leave(slot);
                    }
                }
            }
            read_without_slot(self)
        }

        #[inline]
        fn unlock_read(&self, held: Option<&'static Slot>) {
            match held {
                Some(slot) => Self::leave(slot),
                None => unlock_without_slot(self),
            }
        }

        #[inline]
        fn leave(slot: &Slot) {
            slot.tag.store(0, Release);
            compiler_fence(SeqCst);
            if slot.awaited.load(Relaxed) != 0 {
                tell_writers(slot);
            }
        }
    }

    /// A range lock, as far as a holder that shares its range is concerned.
    #[repr(C)]
    struct RangesByHand {
        number: AtomicU64,
        exclusive: AtomicU64,
        listed: AtomicU64,
        /// 1 in the lowest two bits if ranges are shared.
        sharing: AtomicU64,
        stripes: [Stripe; 16],
    }

    #[repr(C, align(64))]
    struct Stripe(AtomicU64);

    /// One of a thread's four.
    struct RangeSlot {
        tag: AtomicU64,
        first: AtomicU64,
        last: AtomicU64,
        awaited: AtomicU32,
    }

    /// The only thread's.
    static OWN_RANGES: [RangeSlot; 4] = [const {
        RangeSlot {
            tag: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            awaited: AtomicU32::new(0),
        }
    }; 4];

    std::thread_local! {
        static RANGES: Cell<*const [RangeSlot; 4]> = const { Cell::new(ptr::null()) };
    }

    #[cold]
    #[inline(never)]
    fn claim_ranges() -> Option<&'static [RangeSlot; 4]> {
        RANGES.set(&OWN_RANGES);
        Some(&OWN_RANGES)
    }

    #[inline(always)]
    fn own_ranges() -> Option<&'static [RangeSlot; 4]> {
        // SAFETY: null or this thread's, which lives as long as the program.
        unsafe { RANGES.get().as_ref() }.or_else(claim_ranges)
    }

    #[cold]
    #[inline(never)]
    fn number_ranges(lock: &RangesByHand) -> u64 {
        lock.number.store(1, Relaxed);
        1
    }

    /// Where a thread would look at the others, wait, or do without a slot.
    #[cold]
    #[inline(never)]
    fn share_slowly(lock: &RangesByHand, first: u64, last: u64) -> Option<&'static RangeSlot> {
        eprintln!("nobody else uses {:?}, from {first} to {last}", lock.number);
        None
    }

    #[cold]
    #[inline(never)]
    fn begin_sharing(lock: &RangesByHand) {
        lock.sharing.fetch_or(1, SeqCst);
    }

    #[cold]
    #[inline(never)]
    fn tell_about(lock: &RangesByHand, first: u64, last: u64) {
        eprintln!("nobody waits for {:?}, from {first} to {last}", lock.number);
    }

    impl RangesByHand {
        #[inline]
        fn share(&self, first: u64, last: u64) -> Option<&'static RangeSlot> {
            let number = match self.number.load(Relaxed) {
                0 => number_ranges(self),
                number => number,
            };
            let free = |slot: &&RangeSlot| slot.tag.load(Acquire) == 0;
            if let Some(slot) = own_ranges().and_then(|slots| slots.iter().find(free)) {
                let awaited = slot.awaited.load(Relaxed);
                if awaited & 1 != 0 {
                    slot.awaited.store(awaited & !1, Relaxed);
                }
                slot.first.store(first, Release);
                slot.last.store(last, Release);
                let before = self.sharing.load(Relaxed);
                slot.tag.swap(number << 3 | 1, SeqCst);
                if before & 3 != 1 || self.sharing.load(Acquire) != before {
                    begin_sharing(self);
                }
                if self.says_nothing(first >> 16, last >> 16) {
                    slot.tag.store(number << 3 | 2, Release);
                    return Some(slot);
                }
            }
            share_slowly(self, first, last)
        }

        #[inline]
        fn says_nothing(&self, first: u64, last: u64) -> bool {
            let stripe = |block: u64| {
                let hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                self.stripes[((hash * 16) >> 32) as usize].0.load(Acquire)
            };
            let stripes = if last - first < 4 {
                (first..=last).fold(0, |seen, block| seen | stripe(block))
            } else {
                self.stripes.iter().fold(0, |seen, stripe| seen | stripe.0.load(Acquire))
            };
            stripes >> 32 == 0
                && !Self::is_raised(&self.listed, last)
                && stripes as u32 == 0
                && !Self::is_raised(&self.exclusive, last)
        }

        #[inline]
        fn is_raised(wide: &AtomicU64, last: u64) -> bool {
            const END: u64 = u64::MAX >> 20;
            let word = wide.load(Acquire);
            word != 0 && (word >> 20) + last.min(END) >= END
        }

        #[inline]
        fn leave(&self, held: Option<&RangeSlot>, first: u64, last: u64) {
            let Some(slot) = held else {
                return tell_about(self, first, last);
            };
            slot.tag.store(3, Release);
            compiler_fence(SeqCst);
            let awaited = slot.awaited.load(Relaxed);
            slot.tag.store(0, Release);
            if awaited != 0 {
                tell_about(self, first, last);
            }
        }
    }

    /// Where a range lies that is held.
    const PAGE: (u64, u64) = (4096, 8191);

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn share_range_fairlock(lock: &(RangeLock, Extent)) {
        drop(lock.0.read(lock.1));
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn share_range_by_hand(lock: &(RangesByHand, (u64, u64))) {
        let (lock, (first, last)) = lock;
        let held = lock.share(*first, *last);
        lock.leave(held, *first, *last);
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn read_slot_fairlock(lock: &RwLock<()>) {
        drop(lock.read());
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn read_slot_by_hand(lock: &SlotsByHand) {
        let held = lock.lock_read();
        lock.unlock_read(held);
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn read_fairlock(lock: &RwSem<()>) {
        drop(lock.read());
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn write_fairlock(lock: &RwSem<()>) {
        drop(lock.write());
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn read_by_hand(lock: &ByHand) {
        lock.lock_read();
        lock.unlock_read();
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn write_by_hand(lock: &ByHand) {
        lock.lock_write();
        lock.unlock_write();
    }

    static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);

    extern "C" fn on_trap(_signal: libc::c_int) {
        INSTRUCTIONS.fetch_add(1, Relaxed);
    }

    /// The instructions that `run` executes, and a few around it that are always the same.
    #[inline(never)]
    fn count<T>(run: fn(&T), on: &T) -> u64 {
        INSTRUCTIONS.store(0, Relaxed);
        // SAFETY: sets the trap flag; `on_trap` handles each trap and changes nothing else.
        unsafe { core::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        run(on);
        // SAFETY: clears it again.
        unsafe { core::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
        INSTRUCTIONS.load(Relaxed)
    }

    #[inline(never)]
    fn nothing<T>(_: &T) {}

    pub fn main() {
        let (fairlock, by_hand) =
            (RwSem::new(()), ByHand { word: AtomicU64::new(0), owner_cpu: AtomicU32::new(0) });
        // Some reads, and readers use slots; some more after a time without a write, and they use no
        // fences.
        let slots = RwLock::new(());
        for _ in 0..3 {
            (0..2_000).for_each(|_| read_slot_fairlock(&slots));
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let slots_by_hand = SlotsByHand { bias: AtomicU64::new(LIGHT) };
        read_slot_by_hand(&slots_by_hand);
        let page = Extent::of(PAGE.0..=PAGE.1).expect("not empty");
        let ranges = (RangeLock::new(), page);
        share_range_fairlock(&ranges);
        let word = || AtomicU64::new(0);
        let ranges_by_hand = RangesByHand {
            number: word(),
            exclusive: word(),
            listed: word(),
            sharing: word(),
            stripes: std::array::from_fn(|_| Stripe(word())),
        };
        let ranges_by_hand = (ranges_by_hand, PAGE);
        share_range_by_hand(&ranges_by_hand);
        if std::env::args().any(|argument| argument == "plain") {
            read_fairlock(&fairlock);
            write_fairlock(&fairlock);
            read_by_hand(&by_hand);
            write_by_hand(&by_hand);
            read_slot_fairlock(&slots);
            read_slot_by_hand(&slots_by_hand);
            share_range_fairlock(&ranges);
            share_range_by_hand(&ranges_by_hand);
            return;
        }
        // SAFETY: the handler is async-signal-safe, being one atomic addition.
        unsafe { libc::signal(libc::SIGTRAP, on_trap as *const () as libc::sighandler_t) };
        let around = count(nothing, &fairlock);
        let mut worse = false;
        let mut compare = |name: &str, fairlock: u64, by_hand: u64, more: u64| {
            let (fairlock, by_hand) = (fairlock - around, by_hand - around);
            println!("{name}: fairlock {fairlock} instructions, by hand {by_hand}");
            worse |= fairlock > by_hand + more || by_hand == 0;
        };
        compare("read", count(read_fairlock, &fairlock), count(read_by_hand, &by_hand), 0);
        compare("write", count(write_fairlock, &fairlock), count(write_by_hand, &by_hand), 0);
        // A thread-local variable of another crate takes one instruction more to find.
        compare(
            "read in a slot",
            count(read_slot_fairlock, &slots),
            count(read_slot_by_hand, &slots_by_hand),
            1,
        );
        // The same, one for the tag's two states, and two by which a guard, that may have been anywhere
        // in between, finds that it has a slot.
        compare(
            "a shared range",
            count(share_range_fairlock, &ranges),
            count(share_range_by_hand, &ranges_by_hand),
            4,
        );
        std::process::exit(worse.into());
    }
}
