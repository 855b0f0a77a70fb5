//! A distribution of durations, or of lengths of queues.

use fairlock_report::row::{Convoy, Latency};
use hdrhistogram::Histogram;

/// About 73 minutes; longer waits keep their exact maximum and sum.
const LONGEST_BUCKET_NS: u64 = 1 << 42;
/// Percentiles are exact to 1 %. One digit more would take 8 times the cache.
const DIGITS: u8 = 2;

/// Durations in nanoseconds: percentiles to 1 %, count, mean and maximum exact. Whatever else is counted in
/// whole numbers fits, too; those below 256 are exact.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    /// None before the first duration: it takes 37 KiB.
    histogram: Option<Histogram<u64>>,
    sum: u128,
    max: u64,
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_BUCKET_NS, DIGITS)
        .expect("the bounds are constants that hdrhistogram accepts")
}

impl Distribution {
    /// An empty distribution.
    pub fn new() -> Distribution {
        Distribution::default()
    }

    /// Durations that were counted elsewhere: so many of about each length, with their exact sum and
    /// maximum.
    pub fn counted(
        lengths: impl IntoIterator<Item = (u64, u64)>,
        sum: u128,
        max: u64,
    ) -> Distribution {
        let mut counted = Distribution { sum, max, ..Distribution::new() };
        for (ns, count) in lengths {
            counted.histogram.get_or_insert_with(empty).saturating_record_n(ns, count);
        }
        counted
    }

    /// Adds one duration.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.get_or_insert_with(empty).saturating_record(ns);
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Makes the maximum at least `ns` without counting it: for extremes that a sampled
    /// distribution would otherwise miss.
    #[inline]
    pub fn raise_max(&mut self, ns: u64) {
        self.max = self.max.max(ns);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        if let Some(histogram) = &other.histogram {
            let all = self.histogram.get_or_insert_with(empty);
            all.add(histogram).expect("all distributions have the same bounds");
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Takes all of `other` but its maximum: each keeps its own.
    pub(super) fn take(&mut self, other: &mut Distribution) {
        let max = self.max;
        self.merge(other);
        self.max = max;
        *other = Distribution { max: other.max, ..Distribution::new() };
    }

    /// The largest duration, ns; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The exact sum, ns.
    pub(super) fn sum(&self) -> u128 {
        self.sum
    }

    /// About each length that was recorded, and how many there were of it.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let recorded = self.histogram.iter().flat_map(Histogram::iter_recorded);
        recorded.map(|some| (some.value_iterated_to(), some.count_since_last_iteration()))
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// The summary that rows carry.
    pub fn latency(&self) -> Latency {
        let count = self.count();
        // A bucket's upper end may lie above the exact maximum.
        let value =
            |quantile| self.histogram.as_ref().map_or(0, |all| all.value_at_quantile(quantile));
        let percentile = |quantile| value(quantile).min(self.max);
        Latency {
            count,
            mean: if count == 0 { 0.0 } else { self.sum as f64 / count as f64 },
            p50: percentile(0.50),
            p99: percentile(0.99),
            max: self.max,
        }
    }

    /// The summary that rows carry where the numbers are lengths of queues; `None` without any.
    pub fn convoy(&self) -> Option<Convoy> {
        let Latency { count, mean, p99, max, .. } = self.latency();
        (count > 0).then_some(Convoy { count, mean, p99, max })
    }

    /// How many were at least 2^i and less than 2^(i+1), at place i up to the last that has any; those of
    /// 0 stand with those of 1.
    pub fn by_powers_of_two(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for some in self.histogram.iter().flat_map(Histogram::iter_recorded) {
            // The histogram's own buckets are finer and do not cross a power of two.
            let place = some.value_iterated_to().max(1).ilog2() as usize;
            counts.resize(counts.len().max(place + 1), 0);
            counts[place] += some.count_since_last_iteration();
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_is_all_zero() {
        let latency = Distribution::new().latency();
        assert_eq!((latency.count, latency.mean, latency.p50, latency.max), (0, 0.0, 0, 0));
    }

    #[test]
    fn mean_and_maximum_are_exact_and_percentiles_near() {
        let mut low = Distribution::new();
        let mut high = Distribution::new();
        (1..=50).for_each(|ns| low.record(ns * 1_000));
        (51..=100).for_each(|ns| high.record(ns * 1_000));
        low.merge(&high);
        let latency = low.latency();
        assert_eq!(latency.count, 100);
        assert_eq!(latency.mean, 50_500.0);
        assert_eq!(latency.max, 100_000);
        assert!((49_500..=50_500).contains(&latency.p50), "{latency:?}");
        assert!((98_000..=100_000).contains(&latency.p99), "{latency:?}");
    }

    #[test]
    fn powers_of_two_part_what_is_counted() {
        assert_eq!(Distribution::new().by_powers_of_two(), [0; 0]);
        let mut distribution = Distribution::new();
        for ns in [0, 1, 2, 3, 4, 7, 8, 1023, 1024, 1_000_000] {
            distribution.record(ns);
        }
        let mut expected = [0; 20];
        (expected[0], expected[1], expected[2], expected[3]) = (2, 2, 2, 1);
        (expected[9], expected[10], expected[19]) = (1, 1, 1);
        assert_eq!(distribution.by_powers_of_two(), expected);
    }

    #[test]
    fn lengths_of_queues_are_exact() {
        assert_eq!(Distribution::new().convoy(), None);
        let mut distribution = Distribution::new();
        (1..=200).for_each(|length| distribution.record(length));
        let convoy = Convoy { count: 200, mean: 100.5, p99: 198, max: 200 };
        assert_eq!(distribution.convoy(), Some(convoy));
    }

    #[test]
    fn durations_counted_elsewhere_are_as_good() {
        let latency = Distribution::counted([(1_000, 3), (5_000, 1)], 8_100, 5_050).latency();
        assert_eq!((latency.count, latency.mean, latency.max), (4, 2025.0, 5_050));
        assert!((990..=1_010).contains(&latency.p50), "{latency:?}");
    }

    #[test]
    fn a_raised_maximum_is_not_counted() {
        let mut distribution = Distribution::new();
        distribution.record(5);
        distribution.raise_max(1 << 50);
        assert_eq!(distribution.count(), 1);
        assert_eq!(distribution.latency().max, 1 << 50);
        assert_eq!(distribution.latency().mean, 5.0);
    }
}
