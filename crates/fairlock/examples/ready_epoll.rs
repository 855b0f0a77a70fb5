//! A poll inside epoll, next to a socket: a counter, a timer and a channel in user space.
//!
//! `cargo run --example ready_epoll`

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(all(target_os = "linux", not(fairlock_elsewhere))))]
fn main() {
    println!("a poll has a descriptor on Linux only");
}

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod linux {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    use fairlock::ready::{Batch, Counter, Poll, Readiness, Timer, Trigger, channel};

    const COUNTER: u64 = 1;
    const TIMER: u64 = 2;
    const CHANNEL: u64 = 3;

    fn checked(result: i32) -> io::Result<i32> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn add(epoll: &OwnedFd, descriptor: RawFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: both descriptors are open, and the event lives on this stack.
        checked(unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
        })?;
        Ok(())
    }

    pub fn main() -> Result<(), Box<dyn std::error::Error>> {
        let (poll, counter, timer) = (Poll::new(), Counter::new(0), Timer::new());
        let (sender, mut receiver) = channel(4);
        poll.register(&counter, COUNTER, Readiness::READABLE, Trigger::Level)?;
        poll.register(&timer, TIMER, Readiness::READABLE, Trigger::Level)?;
        poll.register(&receiver, CHANNEL, Readiness::READABLE, Trigger::Level)?;

        // SAFETY: a system call without pointers; what it makes is nobody else's.
        let epoll =
            unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let (mut socket, mut writer) = UnixStream::pair()?;
        add(&epoll, socket.as_raw_fd(), 0)?;
        add(&epoll, poll.raw_descriptor()?, 1)?;

        timer.set_after(Duration::from_millis(5));
        let (mut batch, mut seen) = (Batch::with_capacity(8), Vec::new());
        thread::scope(|scope| -> io::Result<()> {
            scope.spawn(|| {
                counter.add(2);
                sender.try_send("from another thread").expect("there is room");
                writer.write_all(b"!").expect("the socket is open");
            });
            while seen.len() < 4 {
                let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
                // SAFETY: room for two events on this stack.
                let count = checked(unsafe {
                    libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), 2, -1)
                })?;
                for event in &events[..count as usize] {
                    if event.u64 == 0 {
                        let mut byte = [0];
                        socket.read_exact(&mut byte)?;
                        seen.push(format!("the socket: {}", char::from(byte[0])));
                        continue;
                    }
                    poll.wait(&mut batch, Some(Duration::ZERO));
                    for ready in &batch {
                        seen.push(match ready.token {
                            COUNTER => {
                                format!("the counter: {}", counter.read().expect("readable"))
                            }
                            TIMER => format!("the timer: {}", timer.read().expect("readable")),
                            _ => format!("the channel: {}", receiver.try_recv().expect("readable")),
                        });
                    }
                }
            }
            Ok(())
        })?;
        println!("{}", seen.join("\n"));
        seen.sort();
        assert_eq!(
            seen,
            ["the channel: from another thread", "the counter: 2", "the socket: !", "the timer: 1"]
        );
        Ok(())
    }
}
