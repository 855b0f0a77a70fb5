//! Medians, bootstrap intervals and fairness.

use crate::random::XorShift;
use crate::row::Estimate;

/// Resamples behind each interval; with the few repetitions a plan makes, more change nothing.
const RESAMPLES: usize = 2000;
/// Fixed, so that the same repetitions always give the same interval.
const BOOTSTRAP_SEED: u64 = 0x5eed_fa17;

/// The median; the mean of the middle two for an even number. 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    median_in_place(&mut sorted)
}

fn median_in_place(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    match below.iter().copied().max_by(f64::total_cmp) {
        Some(lower) if !is_odd => (lower + upper) / 2.0,
        _ => upper,
    }
}

/// With fewer repetitions, [`estimate`]'s interval is their range: the median of a resample would be the least of them, or
/// the most, more often than in 2.5 % of the resamples. So it is no 95 % interval, and a report must not call it one.
pub const FEWEST_FOR_AN_INTERVAL: usize = 6;

/// The median of the repetitions with its 95 % bootstrap interval (percentile method), which is their range below
/// [`FEWEST_FOR_AN_INTERVAL`]. A single repetition gives an interval of no width: there is nothing to resample.
pub fn estimate(values: &[f64]) -> Estimate {
    let centre = median(values);
    if values.len() < FEWEST_FOR_AN_INTERVAL {
        let least = values.iter().copied().min_by(f64::total_cmp).unwrap_or(centre);
        let most = values.iter().copied().max_by(f64::total_cmp).unwrap_or(centre);
        return Estimate { median: centre, low: least, high: most };
    }
    let mut random = XorShift::new(BOOTSTRAP_SEED);
    let mut resample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for slot in &mut resample {
                *slot = values[random.below(values.len() as u32) as usize];
            }
            median_in_place(&mut resample)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| medians[(quantile * (RESAMPLES - 1) as f64).round() as usize];
    Estimate { median: centre, low: at(0.025), high: at(0.975) }
}

/// The median with a 95 % interval that also holds for few repetitions: Student's, of the logarithms. For figures
/// that are compared as ratios.
///
/// Where one is not positive there is no logarithm: then it is as of [`estimate`].
pub fn interval(values: &[f64]) -> Estimate {
    let of_few = (2..FEWEST_FOR_AN_INTERVAL).contains(&values.len());
    let differ = values.iter().any(|value| *value != values[0]);
    if !of_few || !differ || values.iter().any(|value| *value <= 0.0 || !value.is_finite()) {
        return estimate(values);
    }
    let count = values.len() as f64;
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|it| (it - mean).powi(2)).sum();
    let reach = f64::sqrt(squares / (count - 1.0)) * reach(values.len());
    let centre = median(values);
    Estimate {
        median: centre,
        low: f64::exp(mean - reach).min(centre),
        high: f64::exp(mean + reach).max(centre),
    }
}

/// Student's 97.5 % quantiles for two repetitions to [`FEWEST_FOR_AN_INTERVAL`]; with more they hardly change.
const QUANTILES: [f64; 5] = [12.706, 4.303, 3.182, 2.776, 2.571];

/// How far about a 95 % interval of so many repetitions, two at least, reaches to either side, in standard deviations
/// of one.
pub fn reach(repetitions: usize) -> f64 {
    let place = repetitions.clamp(2, FEWEST_FOR_AN_INTERVAL) - 2;
    QUANTILES[place] / f64::sqrt(repetitions.max(2) as f64)
}

/// About how many repetitions have an interval that reaches no further than this.
pub fn repetitions_for(within: f64) -> f64 {
    match (2..FEWEST_FOR_AN_INTERVAL).find(|&count| reach(count) <= within) {
        Some(few) => few as f64,
        None => (QUANTILES[QUANTILES.len() - 1] / within).powi(2),
    }
}

/// Jain's fairness index (sum x)² / (n · sum x²): 1 when all are equal, 1/n when one takes all.
/// Where nobody did anything it is 0: all starved alike, which is no fairness.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// Kendall's τ-b between two readings of the same things: 1 if they order all pairs alike, -1 if
/// the other way round. Readings that differ by less than the fraction `tie` are equal. `None` if
/// one reading orders nothing.
pub fn kendall_tau(pairs: &[(f64, f64)], tie: f64) -> Option<f64> {
    let sign = |a: f64, b: f64| {
        if (a - b).abs() <= tie * a.abs().max(b.abs()) { 0.0 } else { (a - b).signum() }
    };
    let (mut agreement, mut first, mut second) = (0.0, 0.0, 0.0);
    for (index, a) in pairs.iter().enumerate() {
        for b in &pairs[..index] {
            let (x, y) = (sign(a.0, b.0), sign(a.1, b.1));
            agreement += x * y;
            first += x * x;
            second += y * y;
        }
    }
    let scale: f64 = f64::sqrt(first * second);
    (scale > 0.0).then(|| agreement / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn jain_knows_its_extremes() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain(&[0.0, 8.0, 0.0, 0.0]), 0.25);
    }

    #[test]
    fn nobody_who_gets_anything_is_not_called_fair() {
        assert_eq!(jain(&[]), 0.0);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn kendall_tau_counts_pairs() {
        let tau = |pairs: &[(f64, f64)]| kendall_tau(pairs, 0.05);
        assert_eq!(tau(&[(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]), Some(1.0));
        assert_eq!(tau(&[(1.0, 30.0), (2.0, 20.0), (3.0, 10.0)]), Some(-1.0));
        // One pair of three the wrong way round.
        assert_eq!(tau(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]), Some(1.0 / 3.0));
        // A difference within the noise is no order, and says nothing.
        assert_eq!(
            tau(&[(1.0, 1.0), (2.0, 2.0), (2.01, 1.9)]),
            Some(1.0 * 2.0 / f64::sqrt(2.0 * 3.0))
        );
        assert_eq!(tau(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn the_interval_is_repeatable_and_brackets_the_median() {
        let values = [10.0, 12.0, 11.0, 30.0, 9.0, 11.5, 10.5];
        let first = estimate(&values);
        assert_eq!(first, estimate(&values));
        assert_eq!(first.median, 11.0);
        assert!(first.low < first.median && first.median < first.high, "{first:?}");
        assert!(first.low >= 9.0 && first.high <= 30.0, "{first:?}");
    }

    #[test]
    fn few_repetitions_have_an_interval_that_is_as_wide_as_few_repetitions_make_it() {
        let mut random = XorShift::new(1);
        // About a normal distribution of logarithms around 1.
        let mut value = || {
            let sum: f64 =
                (0..12).map(|_| f64::from(random.below(1 << 20)) / f64::from(1 << 20)).sum();
            f64::exp(0.1 * (sum - 6.0))
        };
        for count in 2..=6 {
            const ROUNDS: usize = 1000;
            let covers = |values: Vec<f64>| {
                let it = interval(&values);
                assert!(it.low <= it.median && it.median <= it.high, "{it:?}");
                it.low <= 1.0 && 1.0 <= it.high
            };
            let covered =
                (0..ROUNDS).filter(|_| covers((0..count).map(|_| value()).collect())).count();
            assert!((920..=985).contains(&covered), "{count}: {covered}");
        }
    }

    #[test]
    fn what_has_no_logarithm_has_the_interval_of_the_bootstrap() {
        for values in [[0.0, 2.0, 3.0], [f64::INFINITY, 2.0, 3.0]] {
            assert_eq!(interval(&values), estimate(&values));
        }
        assert_eq!(interval(&[5.0, 5.0]), Estimate { median: 5.0, low: 5.0, high: 5.0 });
    }

    #[test]
    fn the_interval_of_few_repetitions_is_their_range() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 7.0];
        for count in 2..FEWEST_FOR_AN_INTERVAL {
            let some = &values[..count];
            let (low, high) = some.iter().fold((f64::INFINITY, 0.0), |(low, high), value| {
                (f64::min(low, *value), f64::max(high, *value))
            });
            let estimate = estimate(some);
            assert_eq!((estimate.low, estimate.high), (low, high), "{count} repetitions");
        }
        let estimate = estimate(&values[..FEWEST_FOR_AN_INTERVAL]);
        assert!(estimate.low > 1.0 && estimate.high < 6.0, "{estimate:?}");
    }

    #[test]
    fn one_repetition_has_no_interval() {
        assert_eq!(estimate(&[7.0]), Estimate { median: 7.0, low: 7.0, high: 7.0 });
    }
}
