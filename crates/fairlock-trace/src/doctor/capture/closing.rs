//! Closing events beside the recording: the kernel waits for all CPUs each time, which takes it 10 to 100 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

/// A thread that closes events.
pub struct Closing {
    /// None: this value ends.
    sender: Option<Sender<Box<dyn Send>>>,
    left: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Closing {
    /// Starts the thread. It ends with this value, which waits until everything is closed.
    pub fn new() -> Closing {
        let (sender, receiver) = mpsc::channel::<Box<dyn Send>>();
        let left = Arc::new(AtomicUsize::new(0));
        let still_left = Arc::clone(&left);
        let thread = thread::spawn(move || {
            for events in receiver {
                drop(events);
                // Pairs with the load in `is_done`.
                still_left.fetch_sub(1, Ordering::Release);
            }
        });
        Closing { sender: Some(sender), left, thread: Some(thread) }
    }

    /// Closes these soon.
    pub fn close(&self, events: impl Send + 'static) {
        self.left.fetch_add(1, Ordering::Relaxed);
        let sent = self.sender.as_ref().map(|sender| sender.send(Box::new(events)));
        debug_assert!(matches!(sent, Some(Ok(()))), "the thread ends last");
    }

    /// Whether everything is closed. Until then the kernel would let the caller wait who opens another event.
    pub fn is_done(&self) -> bool {
        // Pairs with the thread's subtraction.
        self.left.load(Ordering::Acquire) == 0
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say, and it cannot fail: dropping a descriptor does not.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_closed_in_the_end() {
        struct Event(Sender<u32>, u32);
        impl Drop for Event {
            fn drop(&mut self) {
                self.0.send(self.1).unwrap();
            }
        }
        let closing = Closing::new();
        let (sender, closed) = mpsc::channel();
        closing.close(Event(sender.clone(), 1));
        closing.close(vec![Event(sender.clone(), 2), Event(sender, 3)]);
        assert_eq!(closed.iter().collect::<Vec<_>>(), [1, 2, 3]);
        while !closing.is_done() {
            thread::yield_now();
        }
    }
}
