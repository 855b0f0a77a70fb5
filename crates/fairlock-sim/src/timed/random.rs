//! Reproducible randomness: SplitMix64 (Steele, Lea and Flood, 2014), small enough that a run can
//! never change because a crate did.

/// A source of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `0..bound`; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Of mean 0 and standard deviation 1 (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Lognormal with this median and standard deviation of the logarithm.
    pub(super) fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        if sigma == 0.0 { median } else { median * (sigma * self.normal()).exp() }
    }
}

/// The `sigma` of a lognormal distribution with these percentiles.
pub(super) fn sigma(p50: f64, p99: f64) -> f64 {
    /// The 99th percentile of the standard normal distribution.
    const Z99: f64 = 2.326_347_874;
    if p50 <= 0.0 { 0.0 } else { (p99 / p50).ln().max(0.0) / Z99 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lognormal_has_the_percentiles_asked_for() {
        let mut random = Random::new(7);
        let sigma = sigma(100.0, 400.0);
        let mut samples: Vec<f64> = (0..100_000).map(|_| random.lognormal(100.0, sigma)).collect();
        samples.sort_by(f64::total_cmp);
        assert!((samples[50_000] / 100.0 - 1.0).abs() < 0.02);
        assert!((samples[99_000] / 400.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
