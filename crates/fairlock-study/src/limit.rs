//! How close a mix of readers and writers comes to sharing its lock's time without cost, and what that leaves to the
//! role that loses more.
//!
//! * The *limit* is half of the best rate that any lock gives the readers alone plus half of the best rate that any
//!   lock gives the writers alone: the same threads, each role for half of the time, and nothing lost between.
//!   *Of the limit* is the total rate of a lock over that.
//! * *Lesser role* is the smaller of both roles' rates, each over its rate alone under the same lock. An even share
//!   of the time is 0.5.
//!
//! Where threads think while others hold the lock, as 2 or 4 threads do on 2 CPUs, a lock can do better than share the
//! time: then the limit is none, and a lock may exceed it.
//!
//! The roles alone are rows like others: `fairlock bench` adds them, a study lists them.

use fairlock_report::params::Params;
use fairlock_report::row::{Estimate, Limit, Row};

use crate::metric::{Metric, RoleFigure};
use crate::paired::{self, Measured, divided, mean, of_locks};
use crate::registry;

/// The roles of a mix, or a role alone, by what makes a difference to it.
struct Roles<'a> {
    row: &'a Row,
    /// One for a role alone, two for a mix.
    alone: Vec<Params>,
}

impl<'a> Roles<'a> {
    fn of(row: &'a Row) -> Option<Roles<'a>> {
        let alone: Vec<Params> =
            registry::workload(row)?.alone().iter().map(|role| role.fields().clone()).collect();
        (!alone.is_empty()).then_some(Roles { row, alone })
    }

    fn is_mix(&self) -> bool {
        self.alone.len() > 1
    }

    /// Whether it is this role of the mix, alone, under whatever lock.
    fn is_role_of(&self, mix: &Roles<'_>, role: usize) -> bool {
        let is_beside =
            self.row.workload == mix.row.workload && self.row.machine == mix.row.machine;
        is_beside && !self.is_mix() && self.alone[0] == mix.alone[role]
    }
}

/// Gives each mix among the rows its [`Limit`], as far as its roles were measured alone. Rows whose roles are not
/// among these keep what they have.
pub fn fill(rows: &mut [Row]) {
    let found: Vec<(usize, Limit)> = {
        let roles: Vec<Option<Roles<'_>>> = rows.iter().map(Roles::of).collect();
        let known: Vec<&Roles<'_>> = roles.iter().flatten().collect();
        let mixes = roles.iter().enumerate();
        let mixes = mixes.filter_map(|(place, it)| Some((place, it.as_ref()?)));
        let mixes = mixes.filter(|(_, it)| it.is_mix());
        mixes.filter_map(|(place, mix)| Some((place, of_mix(mix, &known)?))).collect()
    };
    for (place, limit) in found {
        rows[place].limit = Some(limit);
    }
}

fn of_mix(mix: &Roles<'_>, known: &[&Roles<'_>]) -> Option<Limit> {
    let interval = paired::interval_on(&mix.row.machine);
    let total = paired::of_row(&Metric::TotalOps, mix.row).ok()?;
    let mut best = Vec::new();
    let mut shares = Vec::new();
    for role in 0..mix.alone.len() {
        let alone = known.iter().filter(|it| it.is_role_of(mix, role));
        let alone: Vec<&Row> = alone.map(|it| it.row).collect();
        let rates = alone.iter().filter_map(|row| paired::of_row(&Metric::TotalOps, row).ok());
        best.push(of_locks(rates.collect(), f64::max)?);
        let own = alone.into_iter().find(|row| row.lock == mix.row.lock);
        shares.push(own.and_then(|own| share(mix.row, own, interval)));
    }
    let [one, other] = best.as_slice() else { return None };
    let of_limit = divided(&total, &mean(one, other), interval).ok()?.estimate;
    let shares: Option<Vec<Estimate>> = shares.into_iter().collect();
    let lesser =
        |one: Estimate, other: Estimate| if other.median < one.median { other } else { one };
    let lesser_role = shares.and_then(|shares| shares.into_iter().reduce(lesser));
    is_finite(&of_limit).then_some(Limit { of_limit, lesser_role })
}

/// What the role that was measured alone in the row `alone` keeps of its rate in the mix.
fn share(mix: &Row, alone: &Row, interval: paired::Interval) -> Option<Estimate> {
    let role = alone.roles.keys().next()?;
    let figure = RoleFigure::Field("ops_per_s");
    let rate = Metric::Role { role: Some(role.clone()), figure };
    let of = |row: &Row| -> Option<Measured> { paired::of_row(&rate, row).ok() };
    let share = divided(&of(mix)?, &of(alone)?, interval).ok()?.estimate;
    is_finite(&share).then_some(share)
}

/// Nothing can be compared with a role that did nothing alone, and no file can have the result.
fn is_finite(estimate: &Estimate) -> bool {
    [estimate.low, estimate.median, estimate.high].iter().all(|it| it.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use fairlock_lab::workloads::mix::Mix;
    use fairlock_report::params::Value;
    use fairlock_report::statistics;

    /// Each repetition of a lock comes `later` than that of the first one.
    fn row(lock: &str, mix: &Mix, later: u32, rates: [&[f64]; 2]) -> Row {
        let mut row = example::row("mix", lock, &[]);
        row.params = fairlock_lab::workload::AnyWorkload::from(mix.clone()).params(20.0);
        row.roles.clear();
        let repetitions = rates[0].len().max(rates[1].len());
        row.samples.order = (0..repetitions as u32).map(|place| 10 * place + later).collect();
        row.repetitions = repetitions as u32;
        let mut totals = vec![0.0; repetitions];
        for (name, rates) in ["reader", "writer"].into_iter().zip(rates) {
            if rates.is_empty() {
                continue;
            }
            totals.iter_mut().zip(rates).for_each(|(total, rate)| *total += rate);
            let mut role = example::role(1, 1.0);
            role.ops_per_s = statistics::estimate(rates);
            row.roles.insert(name.to_owned(), role);
            row.samples.figures.insert(format!("roles.{name}.ops_per_s"), rates.to_vec());
        }
        row.total_ops_per_s = statistics::estimate(&totals);
        row.samples.figures.insert("total_ops_per_s".to_owned(), totals);
        row
    }

    fn medians(row: &Row) -> (f64, Option<f64>) {
        let limit = row.limit.expect("its roles were measured alone");
        (limit.of_limit.median, limit.lesser_role.map(|it| it.median))
    }

    #[test]
    fn the_limit_is_of_the_best_lock_and_the_lesser_role_of_its_own() {
        let mut rows = [
            row("std", &Mix::dedicated(2, 2), 0, [&[30.0], &[30.0]]),
            row("rwlock", &Mix::dedicated(2, 2), 1, [&[50.0], &[40.0]]),
            row("std", &Mix::dedicated(2, 0), 2, [&[80.0], &[]]),
            row("rwlock", &Mix::dedicated(2, 0), 3, [&[100.0], &[]]),
            row("std", &Mix::dedicated(0, 2), 4, [&[], &[120.0]]),
            row("rwlock", &Mix::dedicated(0, 2), 5, [&[], &[100.0]]),
            // Others are not beside them.
            row("rwlock", &Mix::dedicated(4, 0), 6, [&[900.0], &[]]),
            row("rwlock", &Mix::mixed(2, 50.0), 7, [&[900.0], &[900.0]]),
        ];
        fill(&mut rows);
        // Half of 100 and half of 120.
        assert_eq!(medians(&rows[0]), (60.0 / 110.0, Some(0.25)));
        assert_eq!(medians(&rows[1]), (90.0 / 110.0, Some(0.4)));
        assert!(rows[2..].iter().all(|row| row.limit.is_none()));
    }

    #[test]
    fn repetitions_are_compared_with_those_of_the_same_moment() {
        // The machine was half as fast in the second repetition.
        let mut rows = [
            row("std", &Mix::dedicated(1, 1), 0, [&[40.0, 20.0, 40.0], &[40.0, 20.0, 40.0]]),
            row("std", &Mix::dedicated(1, 0), 1, [&[100.0, 50.0, 100.0], &[]]),
            row("std", &Mix::dedicated(0, 1), 2, [&[], &[100.0, 50.0, 100.0]]),
        ];
        fill(&mut rows);
        let limit = rows[0].limit.unwrap();
        assert_eq!([limit.of_limit.low, limit.of_limit.high], [0.8; 2]);
        assert_eq!(limit.lesser_role.map(|it| [it.low, it.high]), Some([0.4; 2]));
    }

    #[test]
    fn a_role_alone_is_found_whatever_it_has_of_the_other_role() {
        use fairlock_report::units::Length;
        let mix = Mix {
            read_section: Some(Length::Pauses(20)),
            order: Some(fairlock_lab::workloads::mix::Order::Interleaved),
            ..Mix::dedicated(2, 2)
        };
        let reads = Mix { section: Length::Pauses(20), ..Mix::dedicated(2, 0) };
        let writes = Mix { read_section: Some(Length::Pauses(20)), ..Mix::dedicated(0, 2) };
        let mut rows = [
            row("std", &mix, 0, [&[40.0], &[10.0]]),
            row("std", &reads, 1, [&[100.0], &[]]),
            row("std", &writes, 2, [&[], &[100.0]]),
        ];
        fill(&mut rows);
        assert_eq!(medians(&rows[0]), (0.5, Some(0.1)));
    }

    #[test]
    fn without_a_role_alone_there_is_no_figure_of_it() {
        let mix = row("std", &Mix::dedicated(1, 1), 0, [&[40.0], &[10.0]]);
        let reads = row("std", &Mix::dedicated(1, 0), 1, [&[100.0], &[]]);
        let writes = row("usync", &Mix::dedicated(0, 1), 2, [&[], &[100.0]]);
        let mut rows = [mix.clone(), reads.clone()];
        fill(&mut rows);
        assert_eq!(rows[0].limit, None);
        // The limit is of all locks; what a lock does to its roles is its own.
        let mut rows = [mix.clone(), reads.clone(), writes.clone()];
        fill(&mut rows);
        assert_eq!(medians(&rows[0]), (0.5, None));
        let mut elsewhere = writes;
        elsewhere.machine = "eight-sockets".to_owned();
        let mut rows = [mix.clone(), reads.clone(), elsewhere];
        fill(&mut rows);
        assert_eq!(rows[0].limit, None);
        // A role that did nothing alone.
        let still = row("std", &Mix::dedicated(0, 1), 2, [&[], &[0.0]]);
        let mut rows = [mix, reads, still];
        fill(&mut rows);
        assert_eq!(medians(&rows[0]), (1.0, None));
    }

    #[test]
    fn rows_of_a_workload_that_nobody_knows_are_left_alone() {
        let mut unknown = example::row("mix", "std", &[("readers", 1.0), ("writers", 1.0)]);
        unknown.workload = "of-tomorrow".to_owned();
        unknown.params.insert("what".to_owned(), Value::from(1.0));
        let mut rows = [unknown.clone()];
        fill(&mut rows);
        assert_eq!(rows, [unknown]);
    }
}
