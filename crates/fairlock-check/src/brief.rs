//! parking_lot's locks with brief spins, for checkers.
//!
//! A checker ends few spins of each thread, or lets others run at each yield. So it would hardly ever see a thread go to
//! sleep after ten rounds, and what one round leads to is what ten lead to.

use std::marker::PhantomData;

use fairlock_reference::parking_lot::Version;

/// A version of parking_lot whose spins are one round of one turn.
pub struct Brief<V>(PhantomData<fn() -> V>);

impl<V: Version> Version for Brief<V> {
    const HANDS_OVER: bool = V::HANDS_OVER;
    const FIRST_ROUND: u32 = 1;
    const ROUNDS: u32 = 1;
}
