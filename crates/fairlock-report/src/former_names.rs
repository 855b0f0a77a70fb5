//! Names of locks and lock events that earlier versions used, and what they are called now.
//!
//! A former name is accepted wherever a user can write one, and in recordings of earlier versions. It
//! is replaced at once, so that nothing else ever sees it. Whoever presents results prints
//! [`take_note`], which names each replaced name once.
//!
//! Adding a former name is one line in `LOCKS` or `EVENTS`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

use crate::params::Value;
use crate::units::Length;

/// Locks: the former name and the current one.
pub const LOCKS: [(&str, &str); 2] = [("timefair", "rwsem"), ("biased", "rwlock")];

/// Lock events: the former name and the current one.
pub const EVENTS: [(&str, &str); 6] = [
    ("phase_called", "phase_woken"),
    ("slots_barrier", "bias_barrier"),
    ("slots_begin", "bias_begin"),
    ("slots_end", "bias_end"),
    ("slots_light", "bias_unfenced"),
    ("slots_write", "bias_revoke"),
];

/// Parameters: the former name and the current one. They were numbers of PAUSE iterations; now they are lengths,
/// for which a number of pauses can still stand.
/// Who reads was a number, too.
const PARAMS: [(&str, &str); 9] = [
    ("low_reads", "low"),
    ("high_reads", "high"),
    ("section_pauses", "section"),
    ("read_section_pauses", "read_section"),
    ("write_section_pauses", "write_section"),
    ("think_pauses", "think"),
    ("read_think_pauses", "read_think"),
    ("write_think_pauses", "write_think"),
    ("compute_pauses", "compute"),
];

/// The former names that were replaced in this process.
static REPLACED: Mutex<Replaced> =
    Mutex::new(Replaced { unsaid: BTreeSet::new(), said: BTreeSet::new() });

/// Former names with their current ones.
struct Replaced {
    /// Those that no note has named yet.
    unsaid: BTreeSet<(&'static str, &'static str)>,
    /// Those that a note has named.
    said: BTreeSet<(&'static str, &'static str)>,
}

/// What follows the name of a lock whose counts are kept.
pub const COUNTED: &str = "+counts";

/// The current name of what is called `name`, now or formerly.
fn current<'a>(names: &[(&'static str, &'static str)], name: &'a str) -> &'a str {
    let Some(pair) = names.iter().find(|(former, _)| *former == name) else { return name };
    let mut replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
    if !replaced.said.contains(pair) {
        replaced.unsaid.insert(*pair);
    }
    pair.1
}

/// The current name of a lock; a name that never changed is returned as it is.
///
/// ```
/// use fairlock_report::former_names;
/// assert_eq!(former_names::lock("timefair"), "rwsem");
/// assert_eq!(former_names::lock("linux-5.11"), "linux-5.11");
/// ```
pub fn lock(name: &str) -> &str {
    current(&LOCKS, name)
}

/// The current name of a lock event; a name that never changed is returned as it is.
///
/// ```
/// assert_eq!(fairlock_report::former_names::event("slots_light"), "bias_unfenced");
/// ```
pub fn event(name: &str) -> &str {
    current(&EVENTS, name)
}

/// The current name of a parameter in a file; a name that never changed is returned as it is. No note says so: it
/// is spelled nowhere but in files.
pub fn param(name: &str) -> &str {
    PARAMS.iter().find(|(former, _)| *former == name).map_or(name, |(_, now)| now)
}

/// The value of a parameter from a file of any version, as JSON that a field takes whose default value is
/// `default`: choices and flags were numbers once.
pub fn param_value(value: &Value, default: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match (value, default) {
        (Value::Number(number), Json::Bool(_)) => Json::Bool(*number != 0.0),
        (Value::Number(number), Json::String(text)) if text.parse::<Length>().is_err() => {
            Json::String(number.to_string())
        }
        _ => value.to_json(),
    }
}

/// One line about the names that were replaced since the last call, if there are any. No name is in
/// two notes.
///
/// ```standalone_crate
/// use fairlock_report::former_names;
/// former_names::lock("biased");
/// assert_eq!(former_names::take_note().as_deref(), Some("note: `biased` is now called `rwlock`"));
/// former_names::lock("biased");
/// assert_eq!(former_names::take_note(), None);
/// ```
pub fn take_note() -> Option<String> {
    let mut replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
    let unsaid = std::mem::take(&mut replaced.unsaid);
    let words: Vec<String> =
        unsaid.iter().map(|(former, now)| format!("`{former}` is now called `{now}`")).collect();
    replaced.said.extend(unsaid);
    (!words.is_empty()).then(|| format!("note: {}", words.join(", ")))
}

/// Reads a lock's name from a file of any version.
pub fn read_lock<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|name| lock(&name).to_owned())
}

/// Reads locks' names from a file of any version.
pub fn read_locks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    Ok(names.iter().map(|name| lock(name).to_owned()).collect())
}

/// Reads a lock's name, with or without `+counts` behind it, from a file of any version.
pub fn read_variant<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| variant(&text))
}

/// Reads a command to try, whose locks have the names of any version.
pub fn read_advice<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(|text| in_command(&text)))
}

/// The command with the current names of the locks that follow `--lock` and `--compare`.
fn in_command(text: &str) -> String {
    let mut names_follow = false;
    let words = text.split(' ').map(|word| {
        let are_names =
            std::mem::replace(&mut names_follow, matches!(word, "--lock" | "--compare"));
        if !are_names {
            return word.to_owned();
        }
        let names: Vec<_> = word.split(',').map(variant).collect();
        names.join(",")
    });
    let words: Vec<_> = words.collect();
    words.join(" ")
}

/// The current name of a lock with or without `+counts` behind it.
fn variant(text: &str) -> String {
    match text.strip_suffix(COUNTED) {
        Some(name) => format!("{}{COUNTED}", lock(name)),
        None => lock(text).to_owned(),
    }
}

/// Reads counts by the events' names from a file of any version.
pub fn read_events<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let counts = BTreeMap::<String, u64>::deserialize(from)?;
    Ok(counts.into_iter().map(|(name, count)| (event(&name).to_owned(), count)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_try_names_locks_as_they_are_called_now() {
        let text = "fairlock run --compare glibc,timefair,biased+counts -- timefair --lock biased";
        let now = "fairlock run --compare glibc,rwsem,rwlock+counts -- timefair --lock rwlock";
        assert_eq!(in_command(text), now);
        assert_eq!(in_command("hold timefair for less"), "hold timefair for less");
    }
}
