//! A poll inside tokio, next to a socket: a counter, a timer and a channel in user space, for which a
//! task waits.
//!
//! `cargo run --example ready_tokio`

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
    use std::io;
    use std::os::fd::OwnedFd;
    use std::thread;
    use std::time::Duration;

    use fairlock::ready::{Batch, Counter, Poll, Readiness, Timer, Trigger, channel};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio::net::UnixStream;

    const COUNTER: u64 = 1;
    const TIMER: u64 = 2;
    const CHANNEL: u64 = 3;

    /// Waits for what is ready, as a task.
    struct AsyncPoll {
        /// A duplicate of the poll's, which tokio can own.
        descriptor: AsyncFd<OwnedFd>,
        poll: Poll,
    }

    impl AsyncPoll {
        fn new(poll: Poll) -> io::Result<AsyncPoll> {
            let duplicate = poll.descriptor()?.try_clone_to_owned()?;
            // SAFETY: it is the same descriptor always, and open for as long as it is owned.
            let descriptor =
                unsafe { AsyncFd::register_with_interest(duplicate, Interest::READABLE) }?;
            Ok(AsyncPoll { descriptor, poll })
        }

        async fn wait(&self, batch: &mut Batch) -> io::Result<()> {
            loop {
                let mut guard = self.descriptor.readable().await?;
                if self.poll.wait(batch, Some(Duration::ZERO)) > 0 {
                    return Ok(());
                }
                // Nothing is ready: what comes from here on is a new edge.
                guard.clear_ready();
            }
        }
    }

    async fn run() -> Result<(), Box<dyn std::error::Error>> {
        let (poll, counter, timer) = (Poll::new(), Counter::new(0), Timer::new());
        let (sender, mut receiver) = channel(4);
        poll.register(&counter, COUNTER, Readiness::READABLE, Trigger::Level)?;
        poll.register(&timer, TIMER, Readiness::READABLE, Trigger::Level)?;
        poll.register(&receiver, CHANNEL, Readiness::READABLE, Trigger::Level)?;
        let poll = AsyncPoll::new(poll)?;

        let (ours, theirs) = UnixStream::pair()?;
        timer.set_after(Duration::from_millis(5));
        let (mut batch, mut seen) = (Batch::with_capacity(8), Vec::new());
        let other = async {
            theirs.writable().await?;
            theirs.try_write(b"!")?;
            ours.readable().await?;
            let mut byte = [0];
            ours.try_read(&mut byte)?;
            io::Result::Ok(char::from(byte[0]))
        };
        let mut other = std::pin::pin!(other);
        let thread = thread::spawn({
            let sender = sender.clone();
            move || sender.try_send("from another thread").expect("there is room")
        });
        counter.add(2);
        seen.push(format!("the socket: {}", other.as_mut().await?));
        while seen.len() < 4 {
            poll.wait(&mut batch).await?;
            for ready in &batch {
                seen.push(match ready.token {
                    COUNTER => format!("the counter: {}", counter.read().expect("readable")),
                    TIMER => format!("the timer: {}", timer.read().expect("readable")),
                    _ => format!("the channel: {}", receiver.try_recv().expect("readable")),
                });
            }
        }
        thread.join().expect("it has sent");
        println!("{}", seen.join("\n"));
        seen.sort();
        assert_eq!(
            seen,
            ["the channel: from another thread", "the counter: 2", "the socket: !", "the timer: 1"]
        );
        Ok(())
    }

    pub fn main() -> Result<(), Box<dyn std::error::Error>> {
        tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(run())
    }
}
