//! Many short samples of one figure, and what to make of them on a machine that others use, too.

/// Samples in rounds that lie apart in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    rounds: Vec<Vec<f64>>,
}

/// Samples that lie close together, apart from others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cluster {
    /// Their median.
    pub median: f64,
    /// Their share of all, 0 to 1.
    pub share: f64,
}

/// The share below which a few samples are outliers and no cluster.
const LEAST_SHARE: f64 = 0.1;
/// How far apart two clusters' medians are at least.
const LEAST_RATIO: f64 = 1.4;
/// The least part of the variance (of logarithms) that the split explains. A uniform distribution
/// split in its middle has 0.75, a normal one 0.64; two clusters of a third of their distance reach
/// 0.9.
const LEAST_EXPLAINED: f64 = 0.85;

impl Samples {
    /// Adds a round; an empty one is none.
    pub fn push(&mut self, mut round: Vec<f64>) {
        round.retain(|sample| sample.is_finite());
        if !round.is_empty() {
            round.sort_by(f64::total_cmp);
            self.rounds.push(round);
        }
    }

    /// All rounds in one, ascending.
    fn pooled(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.rounds.concat();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// A quantile of all samples, 0 without any.
    pub fn quantile(&self, q: f64) -> f64 {
        quantile(&self.pooled(), q)
    }

    /// The smallest of the rounds' medians, as far as rounds of another state do not count: those
    /// far faster than most.
    ///
    /// A busy neighbour can only make work look longer: the median shrugs off single interruptions
    /// within a round, and the round with the smallest is the least disturbed one.
    pub fn least_median(&self) -> f64 {
        let usual = self.quantile(0.5) / LEAST_RATIO;
        let medians = self.rounds.iter().map(|round| quantile(round, 0.5));
        medians.filter(|&median| median >= usual).reduce(f64::min).unwrap_or(0.0)
    }

    /// The smallest of the rounds' quantiles: a tail as the least disturbed round has it.
    pub fn least_quantile(&self, q: f64) -> f64 {
        self.rounds.iter().map(|round| quantile(round, q)).reduce(f64::min).unwrap_or(0.0)
    }

    /// The two clusters that the samples fall into, the lower first; `None` for one.
    ///
    /// The split is the one that explains most of the variance of the logarithms (Otsu's method).
    pub fn clusters(&self) -> Option<[Cluster; 2]> {
        let sorted: Vec<f64> = self.pooled().into_iter().filter(|&sample| sample > 0.0).collect();
        let logs: Vec<f64> = sorted.iter().map(|sample| sample.ln()).collect();
        let count = logs.len() as f64;
        let total: f64 = logs.iter().sum();
        let mean = total / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / count;

        let mut below = 0.0;
        let mut best = (0.0, 0);
        for split in 1..logs.len() {
            below += logs[split - 1];
            let share = split as f64 / count;
            let low_mean = below / split as f64;
            let high_mean = (total - below) / (count - split as f64);
            let between = share * (1.0 - share) * (high_mean - low_mean).powi(2);
            if between > best.0 {
                best = (between, split);
            }
        }
        let (between, split) = best;
        let share = split as f64 / count;
        let cluster = |part: &[f64], share| Cluster { median: quantile(part, 0.5), share };
        let low = cluster(&sorted[..split], share);
        let high = cluster(&sorted[split..], 1.0 - share);
        let are_two = share.min(1.0 - share) >= LEAST_SHARE
            && high.median >= LEAST_RATIO * low.median
            && between >= LEAST_EXPLAINED * variance;
        are_two.then_some([low, high])
    }

    /// The figure for a profile: the median of the larger of two clusters, else the least median.
    ///
    /// Two clusters are two states of the machine, such as a hypervisor that puts two CPUs on one
    /// core or on two. Programs meet the more frequent one, however fast the other is.
    pub fn typical(&self) -> f64 {
        match self.clusters() {
            Some([low, high]) if high.share > low.share => high.median,
            Some([low, _]) => low.median,
            None => self.least_median(),
        }
    }
}

/// A quantile of ascending values, 0 of none.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((q * last as f64).round() as usize).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_report::random::XorShift;

    /// `count` samples spread evenly within `spread` (a share) around `centre`.
    fn around(random: &mut XorShift, centre: f64, spread: f64, count: usize) -> Vec<f64> {
        let unit = |random: &mut XorShift| f64::from(random.below(1 << 20)) / f64::from(1 << 20);
        (0..count).map(|_| centre * (1.0 + spread * (2.0 * unit(random) - 1.0))).collect()
    }

    fn samples(rounds: Vec<Vec<f64>>) -> Samples {
        let mut samples = Samples::default();
        rounds.into_iter().for_each(|round| samples.push(round));
        samples
    }

    #[test]
    fn two_states_of_a_machine_are_two_clusters_and_the_frequent_one_counts() {
        let mut random = XorShift::new(1);
        let fast = around(&mut random, 60.0, 0.1, 300);
        let slow = around(&mut random, 258.0, 0.1, 700);
        let both = samples(vec![[fast.clone(), slow.clone()].concat()]);
        let [low, high] = both.clusters().unwrap();
        assert!((low.median - 60.0).abs() < 2.0 && (low.share - 0.3).abs() < 1e-9, "{low:?}");
        assert!((high.median - 258.0).abs() < 8.0 && (high.share - 0.7).abs() < 1e-9, "{high:?}");
        assert_eq!(both.typical(), high.median);
        // Whether the states alternate within rounds or between them.
        assert_eq!(samples(vec![fast, slow]).clusters(), both.clusters());
    }

    #[test]
    fn one_state_with_outliers_is_one_cluster() {
        let mut random = XorShift::new(2);
        let plain = around(&mut random, 60.0, 0.2, 500);
        assert_eq!(samples(vec![plain.clone()]).clusters(), None);
        let wide = around(&mut random, 60.0, 0.9, 500);
        assert_eq!(samples(vec![wide]).clusters(), None);
        let interrupted = [plain, around(&mut random, 5000.0, 0.5, 20)].concat();
        let interrupted = samples(vec![interrupted]);
        assert_eq!(interrupted.clusters(), None);
        assert!((interrupted.typical() - 60.0).abs() < 3.0);
    }

    #[test]
    fn a_neighbour_in_most_rounds_does_not_count() {
        let mut random = XorShift::new(3);
        let mut round = |centre| around(&mut random, centre, 0.05, 100);
        let disturbed = samples(vec![round(12.0), round(10.0), round(11.5), round(12.5)]);
        assert_eq!(disturbed.clusters(), None);
        assert!((disturbed.typical() - 10.0).abs() < 0.2, "{}", disturbed.typical());
        assert!(disturbed.quantile(0.5) > 11.0);
    }

    #[test]
    fn a_round_in_a_rare_fast_state_does_not_count() {
        let mut rounds = vec![vec![110.0; 100]; 19];
        rounds.push(vec![25.0; 100]);
        let rare = samples(rounds);
        assert_eq!(rare.clusters(), None);
        assert_eq!(rare.typical(), 110.0);
    }

    #[test]
    fn a_tail_is_that_of_the_least_disturbed_round() {
        let tail = |last: f64| [vec![10.0; 97], vec![last; 3]].concat();
        let rounds = samples(vec![tail(50.0), tail(900.0), tail(60.0)]);
        assert_eq!(rounds.least_quantile(0.99), 50.0);
        assert_eq!(rounds.quantile(0.995), 900.0);
    }

    #[test]
    fn no_samples_and_equal_samples_are_no_trouble() {
        let mut none = Samples::default();
        none.push(vec![f64::NAN]);
        assert!(none.is_empty());
        assert_eq!((none.typical(), none.quantile(0.99), none.clusters()), (0.0, 0.0, None));
        let equal = samples(vec![vec![5.0; 10]]);
        assert_eq!((equal.typical(), equal.quantile(0.1), equal.clusters()), (5.0, 5.0, None));
    }
}
