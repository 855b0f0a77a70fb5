//! Small random numbers: which operation is next, how long a thread thinks, which samples an interval is from.

/// A small pseudo-random generator (Marsaglia's xorshift64*), a nanosecond a number: for
/// jitter and resampling.
#[derive(Debug, Clone)]
pub struct XorShift(u64);

impl XorShift {
    /// Any seed will do; neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> XorShift {
        // One round of splitmix64 spreads small seeds; xorshift must not start at 0.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        XorShift((state ^ (state >> 31)) | 1)
    }

    /// 32 random bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Uniform in `0..bound`; 0 for a bound of 0.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

/// Uniform in 75 % to 125 % of `pauses`.
#[inline]
pub fn jittered(pauses: u32, random: &mut XorShift) -> u32 {
    let quarter = pauses / 4;
    if quarter == 0 {
        return pauses;
    }
    pauses - quarter + random.below(2 * quarter + 1)
}

/// Puts the items into a random order.
pub fn shuffle<T>(items: &mut [T], random: &mut XorShift) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u32 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_keeps_its_mean() {
        let mut random = XorShift::new(1);
        let total: u32 = (0..10_000).map(|_| jittered(100, &mut random)).sum();
        assert!((990_000..1_010_000).contains(&total), "{total}");
        assert_eq!(jittered(0, &mut random), 0);
    }

    #[test]
    fn random_numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut random = XorShift::new(0);
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[random.below(7) as usize] = true);
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
