//! Figures of several rows, repetition by repetition: ratios, means, the best of several locks.
//!
//! Each repetition of one row is taken together with the repetition of the other row that was closest in time: what
//! changed on the machine meanwhile changed both. Claims, the recommended lock and the [limit](crate::limit) of a mix
//! are all computed so.

use fairlock_report::row::{Estimate, HERE, Row};
use fairlock_report::statistics;

use crate::metric::{Metric, ratio};

/// A figure, and what each repetition came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The figure.
    pub estimate: Estimate,
    /// By the place among all repetitions; empty where only all of them together are known.
    pub(crate) samples: Vec<(u32, f64)>,
    /// What one more repetition of all that it is made of takes, seconds.
    pub(crate) again_s: f64,
}

/// An estimate of what each repetition came to.
pub(crate) type Interval = fn(&[f64]) -> Estimate;

/// The interval of figures that rows of this machine are compared by. On a simulated machine repetitions are seeds,
/// and there are as many as somebody chose.
pub(crate) fn interval_on(machine: &str) -> Interval {
    if machine == HERE { statistics::interval } else { statistics::estimate }
}

/// A row's only figure of this kind.
///
/// # Errors
/// The row has none, or several.
pub(crate) fn of_row(metric: &Metric, row: &Row) -> Result<Measured, String> {
    let estimate =
        metric.figure(row).ok_or_else(|| format!("the row of {} has no {metric}", row.lock))?;
    let samples = metric.samples(row).into_iter().next().unwrap_or_default();
    Ok(Measured { estimate, samples, again_s: row.seconds })
}

/// The figure of one row of real threads over that of another.
///
/// # Errors
/// Why there is none, in words.
pub fn ratio_of_rows(metric: &Metric, above: &Row, below: &Row) -> Result<Estimate, String> {
    let ratio = divided(&of_row(metric, above)?, &of_row(metric, below)?, interval_on(HERE))?;
    Ok(ratio.estimate)
}

/// Of several locks' figures that which has the least or most of all repetitions together, as `pick` says. Were it
/// chosen anew for each repetition, the best of several equal locks would be better than each of them.
pub(crate) fn of_locks(figures: Vec<Measured>, pick: fn(f64, f64) -> f64) -> Option<Measured> {
    let again_s = figures.iter().map(|figure| figure.again_s).sum();
    let of = |a: Measured, b: Measured| {
        let (of_a, of_b) = (a.estimate.median, b.estimate.median);
        if pick(of_a, of_b) == of_a { a } else { b }
    };
    Some(Measured { again_s, ..figures.into_iter().reduce(of)? })
}

/// The mean of two figures, repetition by repetition as far as these are known.
pub(crate) fn mean(one: &Measured, other: &Measured) -> Measured {
    let half = |a: f64, b: f64| f64::midpoint(a, b);
    let (a, b) = (one.estimate, other.estimate);
    Measured {
        estimate: Estimate {
            median: half(a.median, b.median),
            low: half(a.low, b.low),
            high: half(a.high, b.high),
        },
        samples: paired(&one.samples, &other.samples, |a, b| Some(half(a, b))),
        again_s: one.again_s + other.again_s,
    }
}

/// One figure over another, repetition by repetition as far as these are known.
///
/// # Errors
/// If both are 0.
pub(crate) fn divided(
    above: &Measured,
    below: &Measured,
    interval: Interval,
) -> Result<Measured, String> {
    let samples = ratios(&above.samples, &below.samples);
    let values: Vec<f64> = samples.iter().map(|(_, ratio)| *ratio).collect();
    let estimate = match values.len() {
        0 | 1 => ratio(above.estimate, below.estimate)?,
        _ => interval(&values),
    };
    Ok(Measured { estimate, samples, again_s: above.again_s + below.again_s })
}

/// The ratio of each repetition of the one that has fewer, to the other's that is closest in time.
fn ratios(above: &[(u32, f64)], below: &[(u32, f64)]) -> Vec<(u32, f64)> {
    paired(above, below, |a, b| match (a, b) {
        (0.0, 0.0) => None,
        (_, 0.0) => Some(f64::INFINITY),
        _ => Some(a / b),
    })
}

/// What becomes of each repetition of the one that has fewer together with the other's that is closest in time.
fn paired(
    first: &[(u32, f64)],
    second: &[(u32, f64)],
    join: impl Fn(f64, f64) -> Option<f64>,
) -> Vec<(u32, f64)> {
    if first.len() == second.len() {
        let pairs = first.iter().zip(second);
        return pairs.filter_map(|((at, a), (_, b))| Some((*at, join(*a, *b)?))).collect();
    }
    let is_first_fewer = first.len() < second.len();
    let (few, many) = if is_first_fewer { (first, second) } else { (second, first) };
    let of = |(at, value): &(u32, f64)| {
        let (_, other) = many.iter().min_by_key(|(place, _)| place.abs_diff(*at))?;
        let joined = if is_first_fewer { join(*value, *other) } else { join(*other, *value) };
        Some((*at, joined?))
    };
    few.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(samples: &[(u32, f64)]) -> Measured {
        let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
        let estimate = statistics::estimate(&values);
        Measured { estimate, samples: samples.to_vec(), again_s: 1.0 }
    }

    #[test]
    fn each_repetition_is_divided_by_the_one_that_is_closest_in_time() {
        let above = measured(&[(0, 10.0), (9, 90.0)]);
        let below = measured(&[(1, 1.0), (5, 5.0), (10, 9.0)]);
        assert_eq!(ratios(&above.samples, &below.samples), [(0, 10.0), (9, 10.0)]);
        let ratio = divided(&above, &below, statistics::estimate).unwrap();
        assert_eq!((ratio.estimate.low, ratio.estimate.high, ratio.again_s), (10.0, 10.0, 2.0));
    }

    #[test]
    fn the_best_lock_is_chosen_once_for_all_repetitions() {
        let steady = measured(&[(0, 5.0), (2, 5.0), (4, 5.0)]);
        let uneven = measured(&[(1, 9.0), (3, 1.0), (5, 1.0)]);
        let best = of_locks(vec![uneven.clone(), steady.clone()], f64::max).unwrap();
        assert_eq!((best.samples, best.again_s), (steady.samples.clone(), 2.0));
        assert!(of_locks(Vec::new(), f64::max).is_none());
        let mean = mean(&steady, &uneven);
        assert_eq!(mean.samples, [(0, 7.0), (2, 3.0), (4, 3.0)]);
    }
}
