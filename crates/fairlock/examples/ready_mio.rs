//! A poll inside mio, which is edge-triggered, next to a pipe: a counter, a timer and a channel in user
//! space.
//!
//! `cargo run --example ready_mio`

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
    use std::io::{Read, Write};
    use std::thread;
    use std::time::Duration;

    use fairlock::ready::{Batch, Counter, Poll, Readiness, Timer, Trigger, channel};
    use mio::unix::{SourceFd, pipe};
    use mio::{Events, Interest, Token};

    const PIPE: Token = Token(0);
    const POLL: Token = Token(1);

    const COUNTER: u64 = 1;
    const TIMER: u64 = 2;
    const CHANNEL: u64 = 3;

    pub fn main() -> Result<(), Box<dyn std::error::Error>> {
        let (poll, counter, timer) = (Poll::new(), Counter::new(0), Timer::new());
        let (sender, mut receiver) = channel(4);
        poll.register(&counter, COUNTER, Readiness::READABLE, Trigger::Level)?;
        poll.register(&timer, TIMER, Readiness::READABLE, Trigger::Level)?;
        poll.register(&receiver, CHANNEL, Readiness::READABLE, Trigger::Level)?;

        let mut outer = mio::Poll::new()?;
        let (mut writer, mut reader) = pipe::new()?;
        outer.registry().register(&mut reader, PIPE, Interest::READABLE)?;
        let descriptor = poll.raw_descriptor()?;
        outer.registry().register(&mut SourceFd(&descriptor), POLL, Interest::READABLE)?;

        timer.set_after(Duration::from_millis(5));
        let (mut batch, mut seen) = (Batch::with_capacity(8), Vec::new());
        let mut events = Events::with_capacity(8);
        thread::scope(|scope| -> std::io::Result<()> {
            scope.spawn(|| {
                counter.add(2);
                sender.try_send("from another thread").expect("there is room");
                writer.write_all(b"!").expect("the pipe is open");
            });
            while seen.len() < 4 {
                outer.poll(&mut events, None)?;
                for event in &events {
                    if event.token() == PIPE {
                        let mut byte = [0];
                        reader.read_exact(&mut byte)?;
                        seen.push(format!("the pipe: {}", char::from(byte[0])));
                        continue;
                    }
                    // Until nothing is ready: then the next event is a new edge.
                    while poll.wait(&mut batch, Some(Duration::ZERO)) > 0 {
                        for ready in &batch {
                            seen.push(match ready.token {
                                COUNTER => {
                                    format!("the counter: {}", counter.read().expect("readable"))
                                }
                                TIMER => format!("the timer: {}", timer.read().expect("readable")),
                                _ => format!(
                                    "the channel: {}",
                                    receiver.try_recv().expect("readable")
                                ),
                            });
                        }
                    }
                }
            }
            Ok(())
        })?;
        println!("{}", seen.join("\n"));
        seen.sort();
        assert_eq!(
            seen,
            ["the channel: from another thread", "the counter: 2", "the pipe: !", "the timer: 1"]
        );
        Ok(())
    }
}
