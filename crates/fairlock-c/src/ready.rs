//! `fairlock_poll_t` and the sources that it waits for.

use core::cell::RefCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{TryRecvError, TrySendError};
use std::time::Duration;

use fairlock::Mutex;
use fairlock::ready::{
    Batch, Counter, Event, Poll, PollError, RawSource, Readiness, ReadyList, Receiver, Sender,
    Source, Timer, Trigger, channel,
};

use crate::clock::Moment;
use crate::code::{Trouble, borrowed, caught, guarded};
use crate::copies::served_by_first;

/// There is something to read or to receive.
pub const FAIRLOCK_READABLE: u32 = 1;
/// There is space to write or to send.
pub const FAIRLOCK_WRITABLE: u32 = 2;
/// The other side is gone. Reported whether asked for or not.
pub const FAIRLOCK_CLOSED: u32 = 4;

/// A source is reported by every wait for as long as it is ready.
pub const FAIRLOCK_LEVEL: u32 = 0;
/// A source is reported by one wait for each signal, or for several together, if it is ready then; and
/// once after it was added or modified.
pub const FAIRLOCK_EDGE: u32 = 1;
/// A source is reported once, and then not before fairlock_poll_modify.
pub const FAIRLOCK_ONCE: u32 = 2;

/// As a timeout: as long as it takes.
pub const FAIRLOCK_FOR_EVER: i64 = -1;

/// Waits for the first of many sources, as epoll does for descriptors, in user space. Signalling a source
/// takes some ten to twenty nanoseconds, and no system call unless somebody sleeps. Any number of threads
/// may signal, wait, add and remove.
///
/// A wait that begins after a signal has returned reports its source if it is still ready then, also if
/// another thread was preempted in the middle of a signal.
pub struct fairlock_poll_t {
    poll: Poll,
    /// So many threads are in a wait.
    waiting: AtomicU32,
}

/// Something that threads signal and that a poll waits for: a counter, an event, a timer, or an end of a channel.
/// It is in one poll at a time.
pub struct fairlock_source_t(Kind);

enum Kind {
    Counter(Counter),
    Event(Event),
    Timer(Timer),
    Sender(Sender<Message>),
    Receiver(Receiving),
}

/// What goes through a channel: C's, whatever it points to.
struct Message(*mut c_void);

// SAFETY: an address; who sends it sees to it that the receiver may use it.
unsafe impl Send for Message {}

/// The receiving end, which any thread may use.
struct Receiving {
    end: Mutex<Receiver<Message>>,
    /// The end's source. It is in the channel, which the end keeps alive, not in the end.
    source: *const RawSource<ReadyList>,
}

// SAFETY: the end is under a lock, and the source is one that threads share.
unsafe impl Send for Receiving {}
// SAFETY: as above.
unsafe impl Sync for Receiving {}

impl Source<ReadyList> for fairlock_source_t {
    fn source(&self) -> &RawSource<ReadyList> {
        match &self.0 {
            Kind::Counter(counter) => counter.source(),
            Kind::Event(event) => event.source(),
            Kind::Timer(timer) => timer.source(),
            Kind::Sender(sender) => sender.source(),
            // SAFETY: it lives as long as the end does.
            Kind::Receiver(receiving) => unsafe { &*receiving.source },
        }
    }
}

/// One source that a wait found ready.
#[repr(C)]
pub struct fairlock_ready_t {
    /// What it was added with.
    token: u64,
    /// What it is ready for, among what was asked for: FAIRLOCK_READABLE and so on, combined.
    readiness: u32,
    /// 0.
    reserved: u32,
}

const BITS: [(u32, Readiness); 3] = [
    (FAIRLOCK_READABLE, Readiness::READABLE),
    (FAIRLOCK_WRITABLE, Readiness::WRITABLE),
    (FAIRLOCK_CLOSED, Readiness::CLOSED),
];

fn readiness_of(bits: u32) -> Result<Readiness, Trouble> {
    let known = BITS.iter().fold(0, |known, (bit, _)| known | bit);
    if bits & !known != 0 {
        return Err(Trouble::Invalid);
    }
    let asked = BITS.iter().filter(|(bit, _)| bits & bit != 0);
    Ok(asked.fold(Readiness::NONE, |all, (_, readiness)| all | *readiness))
}

fn bits_of(readiness: Readiness) -> u32 {
    let there = BITS.iter().filter(|(_, one)| readiness.contains(*one));
    there.fold(0, |bits, (bit, _)| bits | bit)
}

fn trigger_of(trigger: u32) -> Result<Trigger, Trouble> {
    match trigger {
        FAIRLOCK_LEVEL => Ok(Trigger::Level),
        FAIRLOCK_EDGE => Ok(Trigger::Edge),
        FAIRLOCK_ONCE => Ok(Trigger::Once),
        _ => Err(Trouble::Invalid),
    }
}

fn boxed<T>(build: impl FnOnce() -> T) -> *mut T {
    caught(|| Box::into_raw(Box::new(build()))).unwrap_or(ptr::null_mut())
}

// ---- sources ----

/// A new counter with the value `count`: readable while it is not zero, writable while one can be added. It
/// is to user space what eventfd is to the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_counter_new(count: u64) -> *mut fairlock_source_t {
    served_by_first!(fairlock_counter_new(count));
    boxed(|| fairlock_source_t(Kind::Counter(Counter::new(count))))
}

/// A new event, ready for nothing, for your own purposes.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_event_new() -> *mut fairlock_source_t {
    served_by_first!(fairlock_event_new());
    boxed(|| fairlock_source_t(Kind::Event(Event::new())))
}

/// A new timer that is not set. It is readable from when its time has come until it is taken, set anew or
/// cancelled. Its clock is CLOCK_MONOTONIC. It is never early, and costs no descriptor and no system call of
/// its own: it is to user space what timerfd is to the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_timer_new() -> *mut fairlock_source_t {
    served_by_first!(fairlock_timer_new());
    boxed(|| fairlock_source_t(Kind::Timer(Timer::new())))
}

/// A new channel with room for so many messages, which are pointers. Its two ends are sources: the sending one is
/// writable while there is room, the receiving one readable while there is a message; each is closed once the other
/// was freed. Any thread may use either; senders do not wait for each other. Free both.
///
/// Errors: EINVAL (null, no capacity, or one of more than 2^24 - 1), ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_channel_new(
    capacity: usize,
    sending_end: *mut *mut fairlock_source_t,
    receiving_end: *mut *mut fairlock_source_t,
) -> c_int {
    served_by_first!(fairlock_channel_new(capacity, sending_end, receiving_end));
    guarded(|| {
        if sending_end.is_null() || receiving_end.is_null() {
            return Err(Trouble::Invalid);
        }
        if !(1..=MOST_MESSAGES).contains(&capacity) {
            return Err(Trouble::Invalid);
        }
        let ends = caught(|| {
            let (sender, end) = channel(capacity);
            let source = ptr::from_ref(end.source());
            let receiving = Receiving { end: Mutex::new(end), source };
            (
                Box::new(fairlock_source_t(Kind::Sender(sender))),
                Box::new(fairlock_source_t(Kind::Receiver(receiving))),
            )
        });
        let (sender, receiver) = ends.ok_or(Trouble::System(libc::ENOMEM))?;
        // SAFETY: not null, so room for a pointer, as the header asks.
        unsafe {
            sending_end.write(Box::into_raw(sender));
            receiving_end.write(Box::into_raw(receiver));
        }
        Ok(())
    })
}

/// As many nodes as a channel can name.
const MOST_MESSAGES: usize = (1 << 24) - 1;

/// Frees a source, and removes it from its poll. No other thread may be using it. What was sent through a channel
/// and not received is forgotten: so receive until that says EAGAIN or EPIPE first, if messages have to be
/// freed.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_source_free(source: *mut fairlock_source_t) -> c_int {
    served_by_first!(fairlock_source_free(source));
    guarded(|| {
        if source.is_null() {
            return Err(Trouble::Invalid);
        }
        // SAFETY: not null, so a source from `boxed`, which nobody else uses, as the header asks.
        drop(unsafe { Box::from_raw(source) });
        Ok(())
    })
}

/// # Safety
/// Null, or a source.
unsafe fn counter<'a>(source: *const fairlock_source_t) -> Result<&'a Counter, Trouble> {
    // SAFETY: the caller passes null or a source.
    match unsafe { borrowed(source) } {
        Ok(fairlock_source_t(Kind::Counter(counter))) => Ok(counter),
        _ => Err(Trouble::Invalid),
    }
}

/// # Safety
/// Null, or a source.
unsafe fn event<'a>(source: *const fairlock_source_t) -> Result<&'a Event, Trouble> {
    // SAFETY: the caller passes null or a source.
    match unsafe { borrowed(source) } {
        Ok(fairlock_source_t(Kind::Event(event))) => Ok(event),
        _ => Err(Trouble::Invalid),
    }
}

/// Adds to a counter, and signals its poll. Never waits for another thread. The thread that takes the count
/// sees everything that this thread did before.
///
/// Errors: EAGAIN (the sum does not fit: nothing is added), EINVAL (null, or not a counter).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_counter_add(
    counter_source: *mut fairlock_source_t,
    count: u64,
) -> c_int {
    served_by_first!(fairlock_counter_add(counter_source, count));
    // SAFETY: the header asks for null or a source.
    guarded(|| match unsafe { counter(counter_source) }?.add(count) {
        true => Ok(()),
        false => Err(Trouble::Full),
    })
}

/// Takes a counter's count, and leaves zero.
///
/// Errors: EAGAIN (it is zero), EINVAL (null, or not a counter).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_counter_take(
    counter_source: *mut fairlock_source_t,
    count: *mut u64,
) -> c_int {
    served_by_first!(fairlock_counter_take(counter_source, count));
    guarded(|| {
        if count.is_null() {
            return Err(Trouble::Invalid);
        }
        // SAFETY: the header asks for null or a source.
        let taken = unsafe { counter(counter_source) }?.read().ok_or(Trouble::Full)?;
        // SAFETY: not null, so room for a count, as the header asks.
        unsafe { count.write(taken) };
        Ok(())
    })
}

/// # Safety
/// Null, or a source.
unsafe fn change_event(
    source: *const fairlock_source_t,
    readiness: u32,
    change: fn(&Event, Readiness),
) -> c_int {
    guarded(|| {
        let readiness = readiness_of(readiness)?;
        // SAFETY: the caller passes null or a source.
        change(unsafe { event(source) }?, readiness);
        Ok(())
    })
}

/// Adds to what an event is ready for, and signals its poll: an edge, even if it was ready already. Never
/// waits for another thread.
///
/// Errors: EINVAL (null, not an event, or unknown bits).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_event_set(
    event_source: *mut fairlock_source_t,
    readiness: u32,
) -> c_int {
    served_by_first!(fairlock_event_set(event_source, readiness));
    // SAFETY: the header asks for null or a source.
    unsafe { change_event(event_source, readiness, Event::set) }
}

/// Removes from what an event is ready for.
///
/// Errors: as fairlock_event_set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_event_clear(
    event_source: *mut fairlock_source_t,
    readiness: u32,
) -> c_int {
    served_by_first!(fairlock_event_clear(event_source, readiness));
    // SAFETY: the header asks for null or a source.
    unsafe { change_event(event_source, readiness, |event, readiness| _ = event.clear(readiness)) }
}

/// # Safety
/// Null, or a source.
unsafe fn timer<'a>(source: *const fairlock_source_t) -> Result<&'a Timer, Trouble> {
    // SAFETY: the caller passes null or a source.
    match unsafe { borrowed(source) } {
        Ok(fairlock_source_t(Kind::Timer(timer))) => Ok(timer),
        _ => Err(Trouble::Invalid),
    }
}

/// Sets a timer to expire once, after so many nanoseconds. Forgets expirations that were not taken, as
/// everything does that sets or cancels the timer. Any thread may set it, whether or not another one waits.
///
/// Errors: EINVAL (null, or not a timer).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_timer_set_after(
    timer_source: *mut fairlock_source_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_timer_set_after(timer_source, nanoseconds));
    guarded(|| {
        // SAFETY: the header asks for null or a source.
        unsafe { timer(timer_source) }?.set_after(Duration::from_nanos(nanoseconds));
        Ok(())
    })
}

/// Sets a timer to expire once, when CLOCK_MONOTONIC shows the deadline; at once if that is over.
///
/// Errors: EINVAL (null, not a timer, or tv_nsec not below a billion).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_timer_set_at(
    timer_source: *mut fairlock_source_t,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_timer_set_at(timer_source, deadline));
    guarded(|| {
        // SAFETY: the header asks for null or a time.
        let moment = unsafe { Moment::of(libc::CLOCK_MONOTONIC, deadline) }?;
        // SAFETY: the header asks for null or a source.
        unsafe { timer(timer_source) }?.set_at(moment.nanoseconds());
        Ok(())
    })
}

/// Sets a timer to expire after `first` nanoseconds, and then every `period` nanoseconds. Its moments do not
/// shift, however late it is looked at.
///
/// Errors: EINVAL (null, not a timer, or a period of 0).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_timer_set_every(
    timer_source: *mut fairlock_source_t,
    first: u64,
    period: u64,
) -> c_int {
    served_by_first!(fairlock_timer_set_every(timer_source, first, period));
    guarded(|| {
        if period == 0 {
            return Err(Trouble::Invalid);
        }
        let (first, period) = (Duration::from_nanos(first), Duration::from_nanos(period));
        // SAFETY: the header asks for null or a source.
        unsafe { timer(timer_source) }?.set_every(first, period);
        Ok(())
    })
}

/// Cancels a timer, set or not.
///
/// Errors: EINVAL (null, or not a timer).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_timer_cancel(timer_source: *mut fairlock_source_t) -> c_int {
    served_by_first!(fairlock_timer_cancel(timer_source));
    guarded(|| {
        // SAFETY: the header asks for null or a source.
        unsafe { timer(timer_source) }?.cancel();
        Ok(())
    })
}

/// Takes how often a timer has expired since it was set or last taken.
///
/// Errors: EAGAIN (it has not), EINVAL (null, or not a timer).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_timer_take(
    timer_source: *mut fairlock_source_t,
    expirations: *mut u64,
) -> c_int {
    served_by_first!(fairlock_timer_take(timer_source, expirations));
    guarded(|| {
        if expirations.is_null() {
            return Err(Trouble::Invalid);
        }
        // SAFETY: the header asks for null or a source.
        let taken = unsafe { timer(timer_source) }?.read().ok_or(Trouble::Full)?;
        // SAFETY: not null, so room for a count, as the header asks.
        unsafe { expirations.write(taken) };
        Ok(())
    })
}

/// Sends a message, which may be null, and signals the receiving end's poll. Never waits for another thread. The
/// thread that receives it sees everything that this thread did before. Messages of one thread arrive in
/// their order.
///
/// Errors: EAGAIN (there is no room), EPIPE (the receiving end was freed), EINVAL (null, or not a sending end).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_channel_send(
    sending_end: *mut fairlock_source_t,
    message: *mut c_void,
) -> c_int {
    served_by_first!(fairlock_channel_send(sending_end, message));
    guarded(|| {
        // SAFETY: the header asks for null or a source.
        let fairlock_source_t(Kind::Sender(sender)) = unsafe { borrowed(sending_end) }? else {
            return Err(Trouble::Invalid);
        };
        sender.try_send(Message(message)).map_err(|refused| match refused {
            TrySendError::Full(_) => Trouble::Full,
            TrySendError::Disconnected(_) => Trouble::System(libc::EPIPE),
        })
    })
}

/// Receives the next message, if there is one. Threads that receive at once wait for each other for a moment.
///
/// Errors: EAGAIN (there is none), EPIPE (there is none, and the sending end was freed), EINVAL (null, or not a
/// receiving end).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_channel_receive(
    receiving_end: *mut fairlock_source_t,
    message: *mut *mut c_void,
) -> c_int {
    served_by_first!(fairlock_channel_receive(receiving_end, message));
    guarded(|| {
        if message.is_null() {
            return Err(Trouble::Invalid);
        }
        // SAFETY: the header asks for null or a source.
        let fairlock_source_t(Kind::Receiver(receiving)) = unsafe { borrowed(receiving_end) }?
        else {
            return Err(Trouble::Invalid);
        };
        let received = receiving.end.lock().try_recv().map_err(|refused| match refused {
            TryRecvError::Empty => Trouble::Full,
            TryRecvError::Disconnected => Trouble::System(libc::EPIPE),
        })?;
        // SAFETY: not null, so room for a message, as the header asks.
        unsafe { message.write(received.0) };
        Ok(())
    })
}

// ---- the poll ----

/// A new poll without sources.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_poll_new() -> *mut fairlock_poll_t {
    served_by_first!(fairlock_poll_new());
    boxed(|| fairlock_poll_t { poll: Poll::new(), waiting: AtomicU32::new(0) })
}

/// Frees a poll and removes its sources from it, but does not free them. No other thread may be using it.
///
/// Errors: EINVAL (null), EBUSY (a thread waits: nothing is done).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_poll_free(poll: *mut fairlock_poll_t) -> c_int {
    served_by_first!(fairlock_poll_free(poll));
    guarded(|| {
        // SAFETY: the header asks for null or a poll.
        if unsafe { borrowed(poll) }?.waiting.load(Relaxed) != 0 {
            return Err(Trouble::Busy);
        }
        // SAFETY: not null, so a poll from `boxed`, which nobody else uses, as the header asks.
        drop(unsafe { Box::from_raw(poll) });
        Ok(())
    })
}

/// Begins to wait for a source, or changes what is reported of it: as `watch` does.
///
/// # Safety
/// `poll` is null, or a poll; `source` is null, or a source.
unsafe fn watch(
    poll: *mut fairlock_poll_t,
    source: *mut fairlock_source_t,
    token: u64,
    interest: u32,
    trigger: u32,
    watch: fn(&Poll, &fairlock_source_t, u64, Readiness, Trigger) -> Result<(), PollError>,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller passes null or a poll, and null or a source.
        let (poll, source) = unsafe { (&borrowed(poll)?.poll, borrowed(source)?) };
        watch(poll, source, token, readiness_of(interest)?, trigger_of(trigger)?)
            .map_err(PollError::into)
    })
}

/// Waits for a source from now on, and reports it as `token` when it is ready for some of `interest`
/// (FAIRLOCK_READABLE and so on, together), as `trigger` says (FAIRLOCK_LEVEL, FAIRLOCK_EDGE or
/// FAIRLOCK_ONCE).
///
/// Errors: EEXIST (the source is in a poll, this or another), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_poll_add(
    poll: *mut fairlock_poll_t,
    source: *mut fairlock_source_t,
    token: u64,
    interest: u32,
    trigger: u32,
) -> c_int {
    served_by_first!(fairlock_poll_add(poll, source, token, interest, trigger));
    // SAFETY: the header asks for null or a poll, and null or a source.
    unsafe { watch(poll, source, token, interest, trigger, Poll::register) }
}

/// Changes what is reported of a source, and looks at it again: if it is ready it is reported once more,
/// whatever the trigger.
///
/// Errors: ENOENT (the source is not in this poll), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_poll_modify(
    poll: *mut fairlock_poll_t,
    source: *mut fairlock_source_t,
    token: u64,
    interest: u32,
    trigger: u32,
) -> c_int {
    served_by_first!(fairlock_poll_modify(poll, source, token, interest, trigger));
    // SAFETY: the header asks for null or a poll, and null or a source.
    unsafe { watch(poll, source, token, interest, trigger, Poll::modify) }
}

/// Removes a source from the poll. No wait that begins after this has returned reports it.
///
/// Errors: ENOENT (the source is not in this poll), EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_poll_remove(
    poll: *mut fairlock_poll_t,
    source: *mut fairlock_source_t,
) -> c_int {
    served_by_first!(fairlock_poll_remove(poll, source));
    guarded(|| {
        // SAFETY: the header asks for null or a poll, and null or a source.
        let (poll, source) = unsafe { (&borrowed(poll)?.poll, borrowed(source)?) };
        poll.deregister(source).map_err(PollError::into)
    })
}

/// Waits until a source is ready, or until so many nanoseconds are over. FAIRLOCK_FOR_EVER waits for as long as
/// necessary, 0 does not wait. Fills `ready` with the sources that are ready, in the order in which they became
/// ready, and `count` with their number: at most `capacity`, and at most 4096. The next wait reports the
/// others.
///
/// Errors: ETIMEDOUT (nothing was ready: the count is 0), EINVAL (null, no capacity, or another negative
/// timeout).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_poll_wait(
    poll: *mut fairlock_poll_t,
    ready: *mut fairlock_ready_t,
    capacity: usize,
    nanoseconds: i64,
    count: *mut usize,
) -> c_int {
    served_by_first!(fairlock_poll_wait(poll, ready, capacity, nanoseconds, count));
    guarded(|| {
        // SAFETY: the header asks for null or a poll.
        let poll = unsafe { borrowed(poll) }?;
        if ready.is_null() || count.is_null() || capacity == 0 {
            return Err(Trouble::Invalid);
        }
        let timeout = match u64::try_from(nanoseconds) {
            Ok(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
            Err(_) if nanoseconds == FAIRLOCK_FOR_EVER => None,
            Err(_) => return Err(Trouble::Invalid),
        };
        with_batch(capacity.min(MOST_AT_ONCE), |batch| {
            let _waiting = Waiting::begin(poll);
            poll.poll.wait(batch, timeout);
            for (index, found) in batch.iter().enumerate() {
                let found = fairlock_ready_t {
                    token: found.token,
                    readiness: bits_of(found.readiness),
                    reserved: 0,
                };
                // SAFETY: the header asks for room for `capacity`, which is the most that a batch holds.
                unsafe { ready.add(index).write(found) };
            }
            // SAFETY: not null, so room for a count, as the header asks.
            unsafe { count.write(batch.len()) };
            if batch.is_empty() { Err(Trouble::TimedOut) } else { Ok(()) }
        })
    })
}

/// One wait reports no more than so many, however large the caller's array is.
const MOST_AT_ONCE: usize = 4096;

/// A thread is in a wait.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn begin(poll: &'a fairlock_poll_t) -> Self {
        poll.waiting.fetch_add(1, Relaxed);
        Waiting(&poll.waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// With a batch for as many: the one of the thread's last wait, if that was of this size. So a loop of waits
/// allocates once.
fn with_batch<R>(capacity: usize, wait: impl FnOnce(&mut Batch) -> R) -> R {
    std::thread_local! {
        static LAST: RefCell<Option<(usize, Batch)>> = const { RefCell::new(None) };
    }
    // None where the thread is about to end: then nothing is kept.
    let last = LAST.try_with(|last| last.take()).ok().flatten();
    let mut batch = match last {
        Some((size, batch)) if size == capacity => batch,
        _ => Batch::with_capacity(capacity),
    };
    let outcome = wait(&mut batch);
    let _ = LAST.try_with(|last| last.replace(Some((capacity, batch))));
    outcome
}

/// A descriptor that is readable while something may be ready, for epoll, poll or select. When it is
/// readable, call fairlock_poll_wait with a timeout of 0 until nothing is ready. The descriptor belongs to the
/// poll: do not read, write or close it. It is closed on exec.
///
/// Errors: EINVAL (null), EMFILE and others of the system's if no descriptor can be made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_poll_descriptor(
    poll: *mut fairlock_poll_t,
    descriptor: *mut c_int,
) -> c_int {
    served_by_first!(fairlock_poll_descriptor(poll, descriptor));
    guarded(|| {
        // SAFETY: the header asks for null or a poll.
        let poll = unsafe { borrowed(poll) }?;
        if descriptor.is_null() {
            return Err(Trouble::Invalid);
        }
        let made = poll.poll.raw_descriptor();
        let made =
            made.map_err(|error| Trouble::System(error.raw_os_error().unwrap_or(libc::EIO)))?;
        // SAFETY: not null, so room for a descriptor, as the header asks.
        unsafe { descriptor.write(made) };
        Ok(())
    })
}
