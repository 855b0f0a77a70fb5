//! A machine with other figures than its file has: what a sweep or a fit tries.

use toml::{Table, Value};

use super::schema::{KEYS, Key, Kind};
use super::sheet::{Figure, Origin, ProfileError, Sheet};

/// The keys that can be changed by one number, in words.
fn changeable() -> String {
    let keys = KEYS.iter().filter(|key| amount(key.kind, 1.0).is_some());
    let names = keys.map(|key| match key.kind.is_list() {
        true => format!("{}.0 (and so on)", key.name),
        false => key.name.to_owned(),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// A number as a figure of this kind: times in ns. None of a kind that is not one number.
fn amount(kind: Kind, value: f64) -> Option<Table> {
    let (unit, value) = match kind {
        Kind::Count(..) => ("count", Value::Integer(value.round() as i64)),
        Kind::Frequency => ("ghz", Value::Float(value)),
        Kind::Time | Kind::TimeOrNone | Kind::Times => ("ns", Value::Float(value)),
        Kind::Slowdown => ("factor", Value::Float(value)),
        Kind::Part => ("part", Value::Float(value)),
        Kind::Ticks => ("hz", Value::Float(value)),
        Kind::Links | Kind::Order | Kind::Placement | Kind::Wakenings | Kind::Service => {
            return None;
        }
    };
    Some([(unit.to_owned(), value)].into_iter().collect())
}

impl Sheet {
    /// The machine with another value at `key`, which is spelled as in its file: `line.contended`, and `line.cross.1`
    /// for the second figure of a list. Times are in ns, factors, parts, counts and rates as in the file. `why` stands in
    /// the place of the figure's source.
    ///
    /// # Errors
    /// A key that there is not, or that is not one number; a value that it cannot have.
    ///
    /// ```
    /// use fairlock_sim::profile::Sheet;
    /// let sheet = Sheet::find("westmere-ex-8s").unwrap();
    /// let profile = sheet.changed("line.contended", 3.0, "to see").unwrap().profile().unwrap();
    /// assert_eq!(profile.line.contended, 3.0);
    /// ```
    pub fn changed(mut self, key: &str, value: f64, why: &str) -> Result<Sheet, ProfileError> {
        let wrong = |file: &str, reason: String| ProfileError { file: file.to_owned(), reason };
        let (name, place) = match key.rsplit_once('.') {
            Some((name, place)) if place.parse::<usize>().is_ok() => {
                (name, place.parse().expect("it is one"))
            }
            _ => (key, 0),
        };
        let known = KEYS.iter().find(|known| known.name == name);
        let is_list = known.is_some_and(|known| known.kind.is_list());
        if key != name && !(is_list && key == format!("{name}.{place}")) {
            return Err(wrong(&self.file, format!("`{key}`: `{name}` is one figure; give {name}")));
        }
        if let Some(Kind::Count(least, most)) = known.map(|known| known.kind)
            && value.fract() != 0.0
        {
            let reason =
                format!("`{key}` cannot be {value}; give a whole number from {least} to {most}");
            return Err(wrong(&self.file, reason));
        }
        if known.is_some_and(|known| known.kind == Kind::Times) && key == name {
            return Err(wrong(&self.file, format!("`{key}` is a list; give one of it: {key}.0")));
        }
        let amount = known.and_then(|known| Some((known, amount(known.kind, value)?)));
        let Some((known, amount)) = amount else {
            return Err(wrong(
                &self.file,
                format!("`{key}` is no figure that can be changed; those are: {}", changeable()),
            ));
        };
        if !known.kind.accepts(&amount) {
            let valid = known.kind.valid();
            return Err(wrong(&self.file, format!("`{key}` cannot be {value}; give {valid}")));
        }
        let mut of_key = self.figures.iter_mut().filter(|it| it.key.name == known.name);
        match of_key.nth(place) {
            Some(figure) => {
                figure.amount = amount;
                figure.origin = Origin::Assumed(why.to_owned());
                figure.note.clear();
            }
            None if place == 0 => self.figures.push(figure(known, amount, why)),
            None => {
                return Err(wrong(&self.file, format!("`{key}`: the list has fewer figures")));
            }
        }
        // What the figures mean together.
        self.profile()?;
        Ok(self)
    }

    /// The value at a key, in the units of [`changed`](Sheet::changed); none where the file leaves it out, or where
    /// it is not one number.
    pub fn value(&self, key: &str) -> Option<f64> {
        let (name, place) = match key.rsplit_once('.') {
            Some((name, place)) if place.parse::<usize>().is_ok() => (name, place.parse().ok()?),
            _ => (key, 0),
        };
        let figure = self.figures.iter().filter(|it| it.key.name == name).nth(place)?;
        let of = |unit: &str| figure.amount.get(unit).and_then(super::schema::number);
        match figure.key.kind {
            Kind::Time | Kind::TimeOrNone | Kind::Times => {
                let frequency = self.figures.iter().find(|it| it.key.name == "topology.frequency");
                let ghz = frequency.and_then(|it| super::schema::number(it.amount.get("ghz")?));
                super::schema::time_ns(&figure.amount, ghz.unwrap_or(f64::NAN))
            }
            Kind::Count(..) => of("count"),
            Kind::Frequency => of("ghz"),
            Kind::Slowdown => of("factor"),
            Kind::Part => of("part"),
            Kind::Ticks => of("hz"),
            _ => None,
        }
    }
}

fn figure(key: &'static Key, amount: Table, why: &str) -> Figure {
    let origin = Origin::Assumed(why.to_owned());
    Figure { key, amount, origin, note: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_machine_differs_in_that_figure_alone() {
        let sheet = Sheet::find("westmere-ex-8s").unwrap();
        let before = sheet.clone().profile().unwrap();
        for (key, value) in [
            ("line.contended", 3.0),
            ("line.cross.1", 250.0),
            ("topology.cores_per_socket", 8.0),
            ("line.spread", 0.1),
            ("schedule.tick", 250.0),
            ("wake.call", 1500.0),
        ] {
            let changed = sheet.clone().changed(key, value, "").unwrap();
            assert_eq!(changed.value(key), Some(value), "{key}");
            let old = sheet.value(key).unwrap();
            let back = changed.changed(key, old, "").unwrap().profile().unwrap();
            assert_eq!(back, before, "{key}");
        }
        let cross =
            sheet.changed("line.cross.1", 250.0, "").unwrap().profile().unwrap().line.cross_ns;
        assert_eq!(cross[1], 250.0);
        assert_eq!(cross[0], before.line.cross_ns[0]);
    }

    #[test]
    fn what_cannot_be_changed_is_refused_with_what_can() {
        let sheet = || Sheet::find("westmere-ex-8s").unwrap();
        for (key, value, words) in [
            ("line.contend", 2.0, "line.contended"),
            ("wake.idle", 2.0, "those are"),
            ("line.contended", 0.5, "a factor from 1 to 8"),
            ("line.cross.7", 100.0, "fewer figures"),
            ("line.spread", f64::NAN, "a part from 0 to 0.9"),
            ("line.contended.0", 2.0, "is one figure; give line.contended"),
            ("line.cross", 200.0, "give one of it: line.cross.0"),
            ("line.cross.01", 200.0, "line.cross"),
            ("topology.cores_per_socket", 4.3, "a whole number"),
        ] {
            let said = sheet().changed(key, value, "").unwrap_err().to_string();
            assert!(said.contains(words), "{key}: {said}");
        }
    }
}
