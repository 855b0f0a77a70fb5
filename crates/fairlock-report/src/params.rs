//! Parameters as study files and rows spell them: names with values.
//!
//! A workload's parameters are fields of its own struct in the lab. This is the form in which they travel through
//! files, where the workload may be one that this version does not know.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{self, Length};

/// Parameters by name.
pub type Params = BTreeMap<String, Value>;

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Whether something is so.
    Flag(bool),
    /// A count, a share in percent, bytes, or nanoseconds.
    Number(f64),
    /// A choice by its name, or a quantity with its unit: `edge`, `10p`, `64k`.
    Text(String),
}

impl Value {
    /// The value on an axis: flags are 0 and 1, lengths PAUSE iterations or nanoseconds. None for a choice.
    ///
    /// ```
    /// use fairlock_report::params::Value;
    /// assert_eq!(Value::from("10p").number(), Some(10.0));
    /// assert_eq!(Value::from("edge").number(), None);
    /// ```
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Flag(flag) => Some(f64::from(u8::from(*flag))),
            Value::Number(number) => Some(*number),
            Value::Text(text) => match text.parse() {
                Ok(Length::Pauses(pauses)) => Some(pauses.into()),
                Ok(Length::Nanoseconds(ns)) => Some(ns as f64),
                Err(_) => None,
            },
        }
    }

    /// As JSON has it, whole numbers without a fraction.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Flag(flag) => (*flag).into(),
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                (*number as i64).into()
            }
            Value::Number(number) => (*number).into(),
            Value::Text(text) => text.as_str().into(),
        }
    }

    /// What JSON has, unless it is nothing or no single value.
    pub fn from_json(json: &serde_json::Value) -> Option<Value> {
        match json {
            serde_json::Value::Bool(flag) => Some(Value::Flag(*flag)),
            serde_json::Value::Number(number) => number.as_f64().map(Value::Number),
            serde_json::Value::String(text) => Some(Value::Text(text.clone())),
            _ => None,
        }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Number(number) => f.write_str(&units::trimmed(*number)),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// Values in the order of their numbers, choices by their names behind them.
pub fn in_order(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a.number(), b.number()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.to_string().cmp(&b.to_string()),
    }
}

/// Parameters from a list, for programs and tests.
///
/// ```
/// use fairlock_report::params::{self, Value};
/// let point = params::of(&[("readers", 2.0)]);
/// assert_eq!(point["readers"], Value::Number(2.0));
/// ```
pub fn of(list: &[(&str, f64)]) -> Params {
    list.iter().map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect()
}

/// The number of a parameter that is one.
pub fn number(params: &Params, name: &str) -> Option<f64> {
    params.get(name).and_then(Value::number)
}

/// A parameter of a point. Thread counts follow from the roles where the point does not list them: `threads` of
/// a role, by name.
pub fn find(params: &Params, name: &str, threads: impl Fn(&str) -> Option<f64>) -> Option<Value> {
    params.get(name).cloned().or_else(|| match name {
        "threads" => {
            let sides = ["reader", "writer"].map(threads);
            Some(Value::Number(sides.into_iter().flatten().sum()))
        }
        // Threads that do both have no side of their own.
        "readers" | "writers" if params.contains_key("read_percent") => None,
        "readers" => Some(Value::Number(threads("reader").unwrap_or(0.0))),
        "writers" => Some(Value::Number(threads("writer").unwrap_or(0.0))),
        _ => None,
    })
}

/// Whether a parameter makes no difference because no thread would use it: the size of a read
/// where nobody reads. `count` gives the value of `readers` and `writers`, if it is known.
pub fn is_idle(name: &str, count: impl Fn(&str) -> Option<f64>) -> bool {
    name != "read_percent"
        && (name.starts_with("read_") && count("readers") == Some(0.0)
            || name.starts_with("write_") && count("writers") == Some(0.0))
}
