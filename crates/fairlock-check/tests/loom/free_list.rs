//! The list of what nobody has in hand, under Loom: each number is in one hand, also if a thread is
//! stopped in the middle of taking one while others take and put back.

#[path = "../../../fairlock/src/rwsem/free_list.rs"]
#[allow(dead_code)] // what the child of a fork needs
mod vacant;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fairlock::platform::{AtomicCell, Platform};
use fairlock_check::loom_platform::{Hasty, explore};
use vacant::FreeList;

type Half = <Hasty as Platform>::AtomicU32;

const NUMBERS: usize = 3;

struct List {
    vacant: FreeList<Hasty>,
    next: [Half; NUMBERS],
}

impl List {
    fn full() -> Self {
        let next = std::array::from_fn(|_| AtomicCell::new(0));
        let list = List { vacant: FreeList::NEW, next };
        (1..=NUMBERS as u32).rev().for_each(|number| list.put(number));
        list
    }

    fn next(&self, number: u32) -> &Half {
        &self.next[number as usize - 1]
    }

    fn take(&self) -> Option<u32> {
        self.vacant.take(|number| self.next(number).load(Relaxed))
    }

    fn put(&self, number: u32) {
        self.vacant.put(number, |next| self.next(number).store(next, Relaxed));
    }
}

#[test]
fn one_that_is_stopped_while_it_takes_takes_no_old_successor() {
    explore("one takes while another takes two and puts back one", 2, || {
        let list = Arc::new(List::full());
        let other = Arc::clone(&list);
        let thread = loom::thread::spawn(move || {
            let hands = [other.take(), other.take()];
            other.put(hands[0].expect("there are three"));
            hands[1]
        });
        let mut hands = vec![list.take(), thread.join().expect("it does not panic")];
        hands.extend([list.take(), list.take()]);
        let mut hands: Vec<_> = hands.into_iter().flatten().collect();
        hands.sort_unstable();
        assert_eq!(hands, [1, 2, 3], "each number is in one hand");
    });
}
