//! More repetitions where a claim is undecided, and none where it is decided.
//!
//! After all cells have run as often as their study says, the case whose figure is closest to being decided gets
//! one more repetition of each of its cells, one after the other; then its interval is looked at again. That goes
//! on until nothing is undecided, what is undecided is too close, or the time is up. Whoever looks often enough sees
//! any interval leave out the threshold once, by chance: so a case counts as decided when two looks in a row say so.
//!
//! Simulated machines take no part: their repetitions are seeds, and the study says how many.

use std::collections::BTreeMap;

use fairlock_lab::error::LabError;
use fairlock_report::row::Row;

use super::Study;
use super::claim::{Evidence, Status};
use crate::plan::{Cell, MOST_REPETITIONS};

/// After so many rounds a case gets another one only if no other case needs it, and none if it is too close for an
/// hour.
const MANY_ROUNDS: u32 = 60;

/// By so many looks in a row a case is decided that was undecided before.
const LOOKS: u32 = 2;

/// A case of a claim of a study, by their places.
type Key = (usize, usize, usize);

/// What a case has had so far.
#[derive(Debug, Clone, Copy, Default)]
struct Rounds {
    /// How often its cells were repeated.
    made: u32,
    /// How many of these rounds were looked at.
    looked_at: u32,
    /// Looks in a row by which it is decided.
    decided: u32,
}

impl Rounds {
    /// Takes notice of how the case stands; whether it is open.
    fn look(&mut self, is_undecided: bool) -> bool {
        let is_new = self.made > self.looked_at;
        self.looked_at = self.made;
        self.decided = match is_undecided {
            true => 0,
            false => self.decided + u32::from(is_new),
        };
        is_undecided || self.made > 0 && self.decided < LOOKS
    }
}

/// A case that could do with another round.
struct Open {
    key: Key,
    /// Whether it has had its share of rounds, so that others come first.
    is_late: bool,
    /// About how long it takes until it is decided, seconds.
    seconds: f64,
    /// How long one round takes, seconds.
    round_s: f64,
    cells: Vec<Cell>,
}

/// What [`decide`] works with.
pub struct Means<'a> {
    /// Makes one more repetition of a cell and answers its new row; none if there is none. See
    /// [`Engine::again`](crate::plan::Engine::again).
    pub again: &'a mut dyn FnMut(&Cell) -> Result<Option<Row>, LabError>,
    /// The seconds that are left.
    pub left_s: &'a dyn Fn() -> f64,
}

/// Runs rounds until every case is decided or the time is up. Rows that change are replaced in `rows`.
///
/// # Errors
/// As of [`Engine::again`](crate::plan::Engine::again).
pub fn decide(
    studies: &[Study],
    cells: &[Cell],
    rows: &mut [Row],
    means: &mut Means<'_>,
) -> Result<(), LabError> {
    let mut rounds: BTreeMap<Key, Rounds> = BTreeMap::new();
    loop {
        let left_s = (means.left_s)();
        let open = open(studies, cells, rows, &mut rounds);
        let fits = |case: &Open| case.round_s <= left_s;
        let sooner =
            |a: &Open, b: &Open| a.is_late.cmp(&b.is_late).then(a.seconds.total_cmp(&b.seconds));
        let next = open.into_iter().filter(fits).min_by(sooner);
        let Some(next) = next else { return Ok(()) };
        rounds.entry(next.key).or_default().made += 1;
        for cell in &next.cells {
            let Some(row) = (means.again)(cell)? else { return Ok(()) };
            if let Some(old) = rows.iter_mut().find(|old| old.is_of_one_cell_with(&row)) {
                *old = row;
            }
        }
    }
}

/// The cases that are open now.
fn open(
    studies: &[Study],
    cells: &[Cell],
    rows: &[Row],
    rounds: &mut BTreeMap<Key, Rounds>,
) -> Vec<Open> {
    let evidence = Evidence { rows, ..Evidence::default() };
    let mut open = Vec::new();
    for (study_place, study) in studies.iter().enumerate() {
        let here = study.claims.iter().enumerate().filter(|(_, claim)| claim.machine.is_none());
        for (claim_place, claim) in here {
            let verdict = claim.verdict(&evidence);
            for (case_place, case) in verdict.cases.iter().enumerate() {
                let (seconds, is_too_close) = match (case.status, &case.to_decide) {
                    (Status::NotMeasured, _) | (Status::Inconclusive, None) => continue,
                    (Status::Inconclusive, Some(it)) => (it.seconds, it.is_too_close()),
                    // Another look at once, if it is open.
                    (Status::Met | Status::NotMet, _) => (0.0, false),
                };
                let key = (study_place, claim_place, case_place);
                let had = rounds.entry(key).or_default();
                let is_open = had.look(case.status == Status::Inconclusive);
                let is_late = had.made >= MANY_ROUNDS;
                if !is_open || is_late && is_too_close {
                    continue;
                }
                let Ok(of_case) = claim.rows_of(case_place, &evidence) else { continue };
                if of_case.iter().any(|row| row.repetitions >= MOST_REPETITIONS) {
                    continue;
                }
                let cell_of = |row: &&Row| cells.iter().find(|cell| cell.is_of(row)).cloned();
                let Some(cells) = of_case.iter().map(cell_of).collect::<Option<Vec<Cell>>>() else {
                    continue;
                };
                let round_s = cells.iter().map(Cell::again_s).sum();
                open.push(Open { key, is_late, seconds, round_s, cells });
            }
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use fairlock_lab::workloads::mix::Mix;
    use fairlock_report::statistics::estimate;

    const STUDY: &str = r#"
        title = "t"
        question = "q"
        method = "m"
        [[run]]
        title = "r"
        workload = "mix"
        locks = ["rwlock", "std"]
        points = [{ readers = 1, writers = 1 }]
        repetitions = 3
        seconds = 0.1
        [[claim]]
        id = "c"
        origin = "fairlock"
        text = "rwlock makes more"
        figure = "rwlock / std"
        numerator = { workload = "mix", lock = "rwlock", metric = "total_ops_per_s" }
        denominator = { workload = "mix", lock = "std", metric = "total_ops_per_s" }
        expect = { at_least = 1.0 }
        cases = [{ name = "1 + 1", params = { readers = 1, writers = 1 } }]
    "#;

    fn cell(lock: &str) -> Cell {
        Cell {
            workload: Mix::dedicated(1, 1).into(),
            lock: lock.to_owned(),
            repetitions: 3,
            seconds: 0.1,
            on: None,
            for_limit: false,
        }
    }

    /// A row with these totals, whose repetitions took turns with those of the other.
    fn row(lock: &str, totals: &[f64]) -> Row {
        let mut row = crate::example::row_of(&cell(lock));
        row.params = cell(lock).row_params();
        row.seconds = 0.1;
        row.total_ops_per_s = estimate(totals);
        row.repetitions = totals.len() as u32;
        row.samples.order = (0..totals.len() as u32).map(|place| 2 * place).collect();
        row.samples.figures.insert("total_ops_per_s".to_owned(), totals.to_vec());
        row
    }

    /// Starts with these totals of `rwlock` beside 100 each of `std`, goes on with `then` by turns; answers how many
    /// rounds were made.
    fn rounds(first: [f64; 3], then: [f64; 2], left_s: f64) -> u32 {
        let study = Study::parse("t", STUDY).unwrap();
        let cells = [cell("rwlock"), cell("std")];
        let mut rows = [row("rwlock", &first), row("std", &[100.0; 3])];
        let totals = RefCell::new([first.to_vec(), vec![100.0; 3]]);
        let made = RefCell::new(0);
        let mut again = |cell: &Cell| {
            let is_ours = cell.lock == "rwlock";
            let mut totals = totals.borrow_mut();
            let of_lock = &mut totals[usize::from(!is_ours)];
            let next = then[of_lock.len() % 2];
            of_lock.push(if is_ours { next } else { 100.0 });
            *made.borrow_mut() += u32::from(is_ours);
            Ok(Some(row(&cell.lock, of_lock)))
        };
        let spent = || f64::from(*made.borrow()) * 0.2;
        let left = || left_s - spent();
        decide(&[study], &cells, &mut rows, &mut Means { again: &mut again, left_s: &left })
            .unwrap();
        made.into_inner()
    }

    #[test]
    fn what_is_decided_gets_no_repetition_and_what_is_not_gets_some_until_two_looks_agree() {
        assert_eq!(rounds([110.0, 111.0, 112.0], [111.0; 2], 100.0), 0);
        let made = rounds([90.0, 111.0, 112.0], [111.0; 2], 100.0);
        assert!((2..=20).contains(&made), "{made}");
    }

    #[test]
    fn rounds_end_with_the_time_and_for_what_is_too_close() {
        assert_eq!(rounds([90.0, 100.0, 110.0], [90.0, 110.0], 1.0), 4);
        assert_eq!(rounds([90.0, 100.0, 110.0], [90.0, 110.0], 1e6), MANY_ROUNDS);
    }

    #[test]
    fn what_could_be_decided_goes_on_until_the_time_is_up() {
        // Each round takes 0.2 s, with what starts threads a little more.
        let made = rounds([90.0, 112.0, 90.0], [90.0, 112.0], 14.0);
        assert!((68..=70).contains(&made) && made > MANY_ROUNDS, "{made}");
    }

    #[test]
    fn an_undecided_claim_says_how_long_it_would_take() {
        let study = Study::parse("t", STUDY).unwrap();
        let rows = [row("rwlock", &[90.0, 111.0, 112.0]), row("std", &[100.0; 3])];
        let evidence = Evidence { rows: &rows, ..Evidence::default() };
        let verdict = study.claims[0].verdict(&evidence);
        // 1.11 [0.90, 1.12]: the way to 1 is 0.11, the interval reaches 0.21 below. Three repetitions of 0.2 s
        // become eleven.
        assert!(verdict.text.contains("about 2 s more would decide it"), "{}", verdict.text);
        let close = [row("rwlock", &[90.0, 100.0, 112.0]), row("std", &[100.0; 3])];
        let verdict = study.claims[0].verdict(&Evidence { rows: &close, ..Evidence::default() });
        assert!(verdict.text.contains("too close for an hour"), "{}", verdict.text);
    }
}
