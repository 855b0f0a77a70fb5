//! A poll in other event loops, by its descriptor: in epoll, level and edge-triggered. mio and tokio are
//! in `examples`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::ready::{Batch, Counter, Event, Poll, Readiness, Timer, Trigger, channel};

const READABLE: Readiness = Readiness::READABLE;
const NOW: Option<Duration> = Some(Duration::ZERO);
const SOON: Duration = Duration::from_millis(2);
const EDGE: u32 = libc::EPOLLET as u32;
const LEVEL: u32 = 0;

/// The kernel's.
struct Epoll(OwnedFd);

impl Epoll {
    fn over(descriptor: BorrowedFd<'_>, trigger: u32) -> Epoll {
        // SAFETY: a new descriptor; the event lives on this stack.
        unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            assert!(epoll >= 0);
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32 | trigger, u64: 0 };
            let descriptor = descriptor.as_raw_fd();
            let result = libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &raw mut event);
            assert_eq!(result, 0);
            Epoll(OwnedFd::from_raw_fd(epoll))
        }
    }

    /// Whether something is reported within so many ms; -1 for ever.
    fn wait(&self, timeout: i32) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event on this stack.
        unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, timeout) == 1 }
    }
}

fn tokens(poll: &Poll) -> Vec<u64> {
    let mut batch = Batch::with_capacity(8);
    poll.wait(&mut batch, NOW);
    batch.iter().map(|ready| ready.token).collect()
}

/// A poll that was watched and found empty.
fn watched(trigger: u32) -> (Poll, Epoll) {
    let poll = Poll::new();
    let epoll = Epoll::over(poll.descriptor().unwrap(), trigger);
    assert_eq!(tokens(&poll), []);
    (poll, epoll)
}

#[test]
fn readable_exactly_while_something_is_ready() {
    let (poll, epoll) = watched(LEVEL);
    let counter = Counter::new(0);
    poll.register(&counter, 1, READABLE, Trigger::Level).unwrap();
    for _ in 0..3 {
        assert!(!epoll.wait(0));
        counter.add(1);
        assert!(epoll.wait(0));
        assert_eq!(tokens(&poll), [1]);
        assert!(epoll.wait(0));
        counter.read();
        assert_eq!(tokens(&poll), []);
    }
}

#[test]
fn each_event_after_an_empty_wait_is_an_edge() {
    let (poll, epoll) = watched(EDGE);
    // Of what was before.
    epoll.wait(0);
    let (event, counter) = (Event::new(), Counter::new(0));
    poll.register(&event, 1, READABLE, Trigger::Edge).unwrap();
    poll.register(&counter, 2, READABLE, Trigger::Level).unwrap();
    for _ in 0..3 {
        assert!(!epoll.wait(0));
        event.set(READABLE);
        assert!(epoll.wait(0));
        counter.add(1);
        assert_eq!(tokens(&poll), [1, 2]);
        counter.read();
        assert_eq!(tokens(&poll), []);
        epoll.wait(0);
    }
}

#[test]
fn a_timer_makes_it_readable_although_nobody_waits_in_the_poll() {
    for trigger in [LEVEL, EDGE] {
        let (poll, epoll) = watched(trigger);
        epoll.wait(0);
        let timer = Timer::new();
        poll.register(&timer, 1, READABLE, Trigger::Level).unwrap();
        for _ in 0..3 {
            timer.set_after(SOON);
            while tokens(&poll).is_empty() {
                assert!(epoll.wait(-1));
            }
            assert_eq!(timer.read(), Some(1));
            assert_eq!(tokens(&poll), []);
            epoll.wait(0);
            assert!(!epoll.wait(0));
        }
        let is_silent = || loop {
            let set_at = Instant::now();
            timer.set_after(SOON);
            timer.cancel();
            if set_at.elapsed() < SOON {
                return !epoll.wait(5);
            }
            // It was due before it was cancelled: once more.
            assert_eq!(tokens(&poll), []);
            epoll.wait(0);
        };
        assert!(is_silent());
        timer.set_every(SOON / 10, SOON / 10);
        let mut expirations = 0;
        while expirations < 20 {
            assert!(epoll.wait(-1));
            while !tokens(&poll).is_empty() {
                expirations += timer.read().unwrap_or(0);
            }
        }
    }
}

#[test]
fn timers_of_inner_polls_make_the_outer_one_readable() {
    for trigger in [LEVEL, EDGE] {
        let (outer, epoll) = watched(trigger);
        let (inner, timer) = (Poll::new(), Timer::new());
        outer.register(&inner, 5, READABLE, Trigger::Level).unwrap();
        inner.register(&timer, 1, READABLE, Trigger::Level).unwrap();
        let drain = || (tokens(&inner), tokens(&outer));
        for _ in 0..3 {
            assert_eq!(drain(), (vec![], vec![]));
            epoll.wait(0);
            timer.set_after(SOON);
            assert!(epoll.wait(-1));
            assert_eq!(tokens(&outer), [5]);
            assert_eq!(tokens(&inner), [1]);
            assert_eq!(timer.read(), Some(1));
        }
    }
}

#[test]
fn it_is_the_same_for_the_polls_life() {
    let poll = Poll::new();
    let first = poll.raw_descriptor().unwrap();
    let (timer, (_sender, receiver)) = (Timer::new(), channel::<()>(1));
    poll.register(&timer, 1, READABLE, Trigger::Level).unwrap();
    poll.register(&receiver, 2, READABLE, Trigger::Level).unwrap();
    timer.set_after(SOON);
    assert_eq!(poll.raw_descriptor().unwrap(), first);
    // SAFETY: the descriptor is open.
    let flags = unsafe { libc::fcntl(first, libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

/// Two threads that sleep in the kernel hand a message back and forth.
#[test]
fn no_event_is_lost_between_threads() {
    const ROUNDS: u64 = 3_000;
    for trigger in [LEVEL, EDGE] {
        let (ping, mut pinged) = channel(1);
        let (pong, mut ponged) = channel(1);
        let turns = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (poll, epoll) = watched(trigger);
                poll.register(&pinged, 1, READABLE, Trigger::Edge).unwrap();
                for round in 0..ROUNDS {
                    while tokens(&poll).is_empty() {
                        assert!(epoll.wait(-1));
                    }
                    assert_eq!(pinged.try_recv(), Ok(round));
                    turns.fetch_add(1, Relaxed);
                    pong.try_send(round).unwrap();
                }
            });
            let (poll, epoll) = watched(trigger);
            poll.register(&ponged, 1, READABLE, Trigger::Level).unwrap();
            for round in 0..ROUNDS {
                ping.try_send(round).unwrap();
                while tokens(&poll).is_empty() {
                    assert!(epoll.wait(-1));
                }
                assert_eq!(ponged.try_recv(), Ok(round));
                turns.fetch_add(1, Relaxed);
            }
        });
        assert_eq!(turns.into_inner(), 2 * ROUNDS);
    }
}

/// In a process of its own, whose limit it is.
#[test]
fn without_descriptors_there_is_an_error_and_the_poll_goes_on() {
    const UNLIMITED: libc::c_int = 2;
    // SAFETY: the child makes only system calls beside what is tested, and no thread of this process holds
    // a lock that it needs: it does not allocate before it has an answer.
    unsafe {
        let (poll, counter) = (Poll::new(), Counter::new(0));
        poll.register(&counter, 1, READABLE, Trigger::Level).unwrap();
        let mut batch = Batch::with_capacity(1);
        let child = libc::fork();
        if child == 0 {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) != 0 {
                libc::_exit(UNLIMITED);
            }
            let refused =
                poll.descriptor().is_err_and(|error| error.raw_os_error() == Some(libc::EMFILE));
            counter.add(1);
            let works = poll.wait(&mut batch, NOW) == 1;
            libc::_exit(i32::from(!(refused && works)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == UNLIMITED {
            return eprintln!("skipped: the number of descriptors cannot be limited here");
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    }
    let poll = Poll::new();
    assert!(poll.descriptor().unwrap().as_fd().as_raw_fd() >= 0);
}

/// Otherwise an event loop would find a poll readable that nobody can wait for any more.
#[test]
fn it_is_closed_with_the_poll_although_a_source_lives_on() {
    let counter = Counter::new(0);
    let (poll, epoll) = watched(LEVEL);
    poll.register(&counter, 1, READABLE, Trigger::Level).unwrap();
    counter.add(1);
    assert!(epoll.wait(0));
    drop(poll);
    assert!(!epoll.wait(0));
}
