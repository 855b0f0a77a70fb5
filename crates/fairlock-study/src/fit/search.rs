//! Which points to try: evenly spread over ranges, then over those that the best ones span.

use fairlock_report::random::{XorShift, shuffle};

use super::Tried;
use super::file::{Parameter, Scale, Search};

/// A value of each parameter, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Point(pub Vec<f64>);

/// The least and the most of each parameter.
pub type Ranges = Vec<[f64; 2]>;

/// How much wider than the best points, on both sides together, the next ranges are.
const WIDER: f64 = 0.4;
/// The next ranges are at least this part of the first ones: the best points may agree by chance.
const LEAST: f64 = 0.03;
/// How far from the best point a parameter is moved to see what it moves, as a part of its range.
const MOVE: f64 = 0.1;

/// A value on its scale.
fn on_scale(parameter: &Parameter, value: f64) -> f64 {
    match parameter.scale {
        Scale::Linear => value,
        Scale::Log => value.ln(),
    }
}

fn from_scale(parameter: &Parameter, value: f64) -> f64 {
    parameter.settled(match parameter.scale {
        Scale::Linear => value,
        Scale::Log => value.exp(),
    })
}

/// The ranges of the file.
pub fn whole(parameters: &[Parameter]) -> Ranges {
    parameters.iter().map(|it| it.range).collect()
}

/// Points spread over ranges: each range is cut into as many parts as there are points, and each part is used once
/// (a Latin hypercube).
pub fn spread(
    parameters: &[Parameter],
    within: &Ranges,
    search: &Search,
    round: u64,
) -> Vec<Point> {
    let count = search.candidates;
    let mut random = XorShift::new(search.seed.wrapping_mul(1_000_003).wrapping_add(round));
    let columns: Vec<Vec<f64>> = parameters
        .iter()
        .zip(within)
        .map(|(parameter, range)| {
            let [least, most] = range.map(|it| on_scale(parameter, it));
            let part = (most - least) / f64::from(count);
            let mut column: Vec<f64> = (0..count)
                .map(|place| {
                    let share = f64::from(random.next_u32()) / (u32::MAX as f64 + 1.0);
                    from_scale(parameter, least + (f64::from(place) + share) * part)
                })
                .collect();
            shuffle(&mut column, &mut random);
            column
        })
        .collect();
    (0..count as usize).map(|at| Point(columns.iter().map(|column| column[at]).collect())).collect()
}

/// The best point: of equally good ones the first.
///
/// # Panics
/// Without any.
pub fn best(tried: &[Tried]) -> &Tried {
    tried.iter().min_by(|one, other| one.error.total_cmp(&other.error)).expect("some were tried")
}

/// Somewhat more than the best `keep` points span.
pub fn around(parameters: &[Parameter], tried: &[Tried], keep: usize) -> Ranges {
    let mut by_error: Vec<&Tried> = tried.iter().collect();
    by_error.sort_by(|one, other| one.error.total_cmp(&other.error));
    by_error.truncate(keep);
    let range = |(at, parameter): (usize, &Parameter)| {
        let values = by_error.iter().map(|it| on_scale(parameter, it.point.0[at]));
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| {
            (least.min(it), most.max(it))
        });
        let [all_least, all_most] = parameter.range.map(|it| on_scale(parameter, it));
        let width = ((most - least) * (1.0 + WIDER)).max((all_most - all_least) * LEAST);
        let middle = (least + most) / 2.0;
        let back = |value: f64| match parameter.scale {
            Scale::Linear => value,
            Scale::Log => value.exp(),
        };
        [back((middle - width / 2.0).max(all_least)), back((middle + width / 2.0).min(all_most))]
    };
    parameters.iter().enumerate().map(range).collect()
}

/// For each parameter the point with less of it and the one with more, within its range.
pub fn moves(parameters: &[Parameter], from: &Point) -> Vec<[Point; 2]> {
    let of = |(at, parameter): (usize, &Parameter)| {
        let [least, most] = parameter.range.map(|it| on_scale(parameter, it));
        let middle = on_scale(parameter, from.0[at]);
        let mut step = (most - least) * MOVE;
        if parameter.counts() && parameter.scale == Scale::Linear {
            step = step.max(1.0);
        }
        [-step, step].map(|step| {
            let mut point = from.clone();
            point.0[at] = from_scale(parameter, (middle + step).clamp(least, most));
            point
        })
    };
    parameters.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Vec<Parameter> {
        let of = |name: &str, range, scale| Parameter {
            name: name.to_owned(),
            range,
            scale,
            start: None,
        };
        vec![
            of("machine.line.contended", [1.0, 4.0], Scale::Linear),
            of("machine.wake.call", [100.0, 10_000.0], Scale::Log),
            of("tune.slack", [1.0, 32.0], Scale::Linear),
        ]
    }

    fn tried(point: Point, error: f64) -> Tried {
        Tried { point, figures: Vec::new(), error, held_back: None }
    }

    #[test]
    fn points_use_each_part_of_each_range_once_and_are_the_same_each_time() {
        let search = Search { candidates: 20, ..Search::default() };
        let parameters = parameters();
        let points = spread(&parameters, &whole(&parameters), &search, 0);
        assert_eq!(points, spread(&parameters, &whole(&parameters), &search, 0));
        assert_ne!(points, spread(&parameters, &whole(&parameters), &search, 1));
        for (at, parameter) in parameters[..2].iter().enumerate() {
            let [least, most] = parameter.range.map(|it| on_scale(parameter, it));
            let mut parts: Vec<usize> = points
                .iter()
                .map(|point| {
                    let share = (on_scale(parameter, point.0[at]) - least) / (most - least);
                    // Four digits of a value may fall on the edge of its part.
                    (share * 20.0 + 1e-3).floor().min(19.0) as usize
                })
                .collect();
            parts.sort_unstable();
            parts.dedup();
            assert!(parts.len() >= 19, "{parts:?}");
        }
        assert!(points.iter().all(|point| point.0[2].fract() == 0.0));
    }

    #[test]
    fn the_search_closes_in_on_the_best_point() {
        let parameters = parameters();
        let wanted = [2.7, 900.0, 9.0];
        let error = |point: &Point| -> f64 {
            let off = parameters.iter().enumerate().map(|(at, parameter)| {
                let [least, most] = parameter.range.map(|it| on_scale(parameter, it));
                let away = on_scale(parameter, point.0[at]) - on_scale(parameter, wanted[at]);
                (away / (most - least)).powi(2)
            });
            off.sum::<f64>().sqrt()
        };
        let search = Search { candidates: 24, rounds: 5, keep: 5, seed: 3 };
        let mut all = Vec::new();
        let mut within = whole(&parameters);
        for round in 0..u64::from(search.rounds) {
            for point in spread(&parameters, &within, &search, round) {
                let off = error(&point);
                all.push(tried(point, off));
            }
            within = around(&parameters, &all, search.keep);
        }
        assert!(best(&all).error < 0.03, "{:?}", best(&all));
    }

    #[test]
    fn moves_stay_within_the_range() {
        let parameters = parameters();
        let ends = moves(&parameters, &Point(vec![4.0, 1_000.0, 2.0]));
        assert_eq!(ends[0][1].0[0], 4.0);
        assert!((ends[0][0].0[0] - 3.7).abs() < 1e-9);
        assert!(ends[1][0].0[1] < 1_000.0 && ends[1][1].0[1] > 1_000.0);
        assert_eq!((ends[2][0].0[2], ends[2][1].0[2]), (1.0, 5.0));
        assert!(ends.iter().enumerate().all(|(at, pair)| {
            pair.iter()
                .all(|it| (0..3).filter(|&o| o != at).all(|o| it.0[o] == [4.0, 1_000.0, 2.0][o]))
        }));
    }
}
