//! Workloads and their parameters by name: the vocabulary that study files, the command
//! line and rows share, and its translation into what the engine runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer};

use crate::plan::{DioForm, DioParams, MixParams, Workload};
use crate::row::Row;
use crate::units;

/// Parameters by name; times in ns, sizes in bytes, work in pauses.
pub type Params = BTreeMap<String, f64>;

/// Every workload with one line about it.
pub const WORKLOADS: [(&str, &str); 4] = [
    (
        "mix",
        "readers and writers (or threads that do both) on one lock, short sections, short thinking",
    ),
    (
        "dio-kernel",
        "O_DIRECT appends beside O_DIRECT tail reads of one file, under the kernel's own inode lock",
    ),
    (
        "dio-lock",
        "the same I/O as overwrites of a preallocated file, under a lock of yours",
    ),
    (
        "dio-sleep",
        "the same shape without a device: holders sleep for the length of an I/O",
    ),
];

/// Parameters a workload takes, by name.
const MIX_PARAMETERS: [&str; 8] = [
    "readers",
    "writers",
    "mixed",
    "read_percent",
    "section_pauses",
    "reader_section_pauses",
    "writer_section_pauses",
    "think_pauses",
];
const DIO_PARAMETERS: [&str; 6] = [
    "readers",
    "writers",
    "read_bytes",
    "write_bytes",
    "read_hold_ns",
    "write_hold_ns",
];

/// Pauses inside and outside the lock where nothing else is said.
pub const DEFAULT_PAUSES: u32 = 10;
/// Bytes of a read or write where nothing else is said.
pub const DEFAULT_BYTES: u32 = 4096;
/// A reader's hold in the sleeping form: a large direct read on an NVMe drive.
pub const DEFAULT_READ_HOLD_NS: u64 = 300_000;
/// A writer's hold in the sleeping form: a small direct write on an NVMe drive.
pub const DEFAULT_WRITE_HOLD_NS: u64 = 20_000;

/// Whether the workload does real O_DIRECT I/O, which not every file system offers.
pub fn needs_direct_io(workload: &str) -> bool {
    matches!(workload, "dio-kernel" | "dio-lock")
}

/// Whether `name` is a workload.
pub fn is_workload(name: &str) -> bool {
    WORKLOADS.iter().any(|(known, _)| *known == name)
}

/// The names of all workloads, for messages.
pub fn workload_names() -> String {
    WORKLOADS.map(|(name, _)| name).join(", ")
}

/// What the engine runs for a workload's name and parameters.
///
/// # Errors
/// An unknown workload or parameter, and a grid point without threads, with the valid choices.
pub fn workload(name: &str, params: &Params, dir: &Path) -> Result<Workload, String> {
    if !is_workload(name) {
        return Err(format!(
            "unknown workload \"{name}\"; the workloads are: {}",
            workload_names()
        ));
    }
    let known: &[&str] = if name == "mix" {
        &MIX_PARAMETERS
    } else {
        &DIO_PARAMETERS
    };
    if let Some(unknown) = params.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!(
            "unknown parameter \"{unknown}\" of {name}; the parameters are: {}",
            known.join(", ")
        ));
    }
    let count = |key: &str, otherwise: u32| -> Result<u32, String> {
        match params.get(key) {
            None => Ok(otherwise),
            Some(&value)
                if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) =>
            {
                Ok(value as u32)
            }
            Some(value) => Err(format!("{key} = {value} is no whole number from 0 up")),
        }
    };
    let readers = count("readers", 0)?;
    let writers = count("writers", 0)?;
    let mixed = count("mixed", 0)?;
    if u64::from(readers) + u64::from(writers) + u64::from(mixed) == 0 {
        return Err(format!(
            "{name} with zero threads; give at least one reader or writer"
        ));
    }
    if name == "mix" {
        let section = count("section_pauses", DEFAULT_PAUSES)?;
        return Ok(Workload::Mix(MixParams {
            readers,
            writers,
            mixed,
            read_percent: params.get("read_percent").copied().unwrap_or(50.0),
            reader_section_pauses: count("reader_section_pauses", section)?,
            writer_section_pauses: count("writer_section_pauses", section)?,
            think_pauses: count("think_pauses", DEFAULT_PAUSES)?,
        }));
    }
    let hold = |key: &str, otherwise: u64| {
        params
            .get(key)
            .map_or(otherwise, |value| value.max(0.0) as u64)
    };
    Ok(Workload::Dio(DioParams {
        form: match name {
            "dio-kernel" => DioForm::Kernel,
            "dio-lock" => DioForm::Lock,
            _ => DioForm::Sleep,
        },
        readers,
        writers,
        read_bytes: count("read_bytes", DEFAULT_BYTES)?,
        write_bytes: count("write_bytes", DEFAULT_BYTES)?,
        read_hold_ns: hold("read_hold_ns", DEFAULT_READ_HOLD_NS),
        write_hold_ns: hold("write_hold_ns", DEFAULT_WRITE_HOLD_NS),
        dir: dir.to_owned(),
    }))
}

/// The name and the threads of what the engine runs: enough to say what is running.
pub fn params_of(workload: &Workload) -> (&'static str, Params) {
    let (name, counts) = match workload {
        Workload::Mix(mix) => ("mix", [mix.readers, mix.writers, mix.mixed]),
        Workload::Dio(dio) => {
            let name = match dio.form {
                DioForm::Kernel => "dio-kernel",
                DioForm::Lock => "dio-lock",
                DioForm::Sleep => "dio-sleep",
            };
            (name, [dio.readers, dio.writers, 0])
        }
    };
    let names = ["readers", "writers", "mixed"].map(str::to_owned);
    (name, names.into_iter().zip(counts.map(f64::from)).collect())
}

/// A parameter of a row. `threads`, `readers`, `writers` and `mixed` follow from the roles where the
/// row does not list them.
pub fn param(row: &Row, name: &str) -> Option<f64> {
    let threads = |role: &str| row.roles.get(role).map_or(0, |role| role.threads);
    row.params.get(name).copied().or_else(|| match name {
        "threads" => Some(f64::from(
            row.roles.values().map(|role| role.threads).sum::<u32>(),
        )),
        "readers" => Some(f64::from(threads("reader"))),
        "writers" => Some(f64::from(threads("writer"))),
        "mixed" => Some(f64::from(threads("mixed"))),
        _ => None,
    })
}

/// Whether the row is of this workload and lock and has all these parameters.
pub fn matches(row: &Row, workload: &str, lock: &str, params: &Params) -> bool {
    row.workload == workload && row.lock == lock && has_params(row, params)
}

/// Whether the row has all these parameters, as far as they make a difference to it.
pub fn has_params(row: &Row, params: &Params) -> bool {
    let count = |role: &str| param(row, role).unwrap_or(0.0);
    params
        .iter()
        .all(|(name, value)| is_idle(name, count) || param(row, name) == Some(*value))
}

/// Whether a parameter makes no difference because no thread would use it: the size of a read
/// where nobody reads. `count` gives the threads of a role.
pub fn is_idle(name: &str, count: impl Fn(&str) -> f64) -> bool {
    if name == "read_percent" {
        return count("mixed") == 0.0;
    }
    let unused = |role: &str| count(role) == 0.0 && count("mixed") == 0.0;
    (name.starts_with("read_") || name.starts_with("reader_")) && unused("readers")
        || (name.starts_with("write_") || name.starts_with("writer_")) && unused("writers")
}

/// The threads of a row in words: `1 writer + 2 readers`.
pub fn describe_threads(params: &Params) -> String {
    let parts: Vec<String> = [
        ("readers", "reader"),
        ("writers", "writer"),
        ("mixed", "mixed thread"),
    ]
    .into_iter()
    .filter_map(|(key, singular)| match params.get(key).copied() {
        None | Some(0.0) => None,
        Some(1.0) => Some(format!("1 {singular}")),
        Some(count) => Some(format!("{} {singular}s", units::trimmed(count))),
    })
    .collect();
    parts.join(" + ")
}

/// One parameter in words: `reads of 64 KiB`.
pub fn describe_param(name: &str, value: f64) -> Option<String> {
    Some(match name {
        "read_percent" => format!("{} % reads", units::trimmed(value)),
        "section_pauses" => format!("section {} pauses", units::trimmed(value)),
        "reader_section_pauses" => format!("read section {} pauses", units::trimmed(value)),
        "writer_section_pauses" => format!("write section {} pauses", units::trimmed(value)),
        "think_pauses" => format!("think {} pauses", units::trimmed(value)),
        "read_bytes" => format!("reads of {}", units::format_bytes(value)),
        "write_bytes" => format!("writes of {}", units::format_bytes(value)),
        "read_hold_ns" => format!("read hold {}", units::format_ns(value)),
        "write_hold_ns" => format!("write hold {}", units::format_ns(value)),
        _ => return None,
    })
}

/// Parameters in words, threads first: the title of a group of rows.
pub fn describe(workload: &str, params: &Params) -> String {
    let count = |role: &str| params.get(role).copied().unwrap_or(0.0);
    let mut parts = vec![describe_threads(params)];
    for (name, value) in params {
        // Say only what this row could depend on.
        let idle = is_idle(name, count)
            || (name.ends_with("hold_ns") && workload != "dio-sleep")
            || (name.ends_with("bytes") && workload == "dio-sleep");
        if !idle && let Some(words) = describe_param(name, *value) {
            parts.push(words);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// A number, or text with a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity(
    /// In the parameter's own unit.
    pub f64,
);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Quantity(number)),
            Written::Text(text) => units::parse_quantity(&text)
                .map(Quantity)
                .map_err(serde::de::Error::custom),
        }
    }
}

/// Reads a table of parameters whose values may carry units.
pub(crate) fn params_with_units<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Params, D::Error> {
    let written = BTreeMap::<String, Quantity>::deserialize(deserializer)?;
    Ok(written
        .into_iter()
        .map(|(name, Quantity(value))| (name, value))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(list: &[(&str, f64)]) -> Params {
        list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
    }

    #[test]
    fn an_unknown_workload_or_parameter_is_refused_with_the_valid_ones() {
        let dir = Path::new(".");
        let error = workload("mux", &Params::new(), dir).unwrap_err();
        assert!(
            error.contains("\"mux\"") && error.contains("dio-sleep"),
            "{error}"
        );
        let error = workload("mix", &params(&[("reader", 1.0)]), dir).unwrap_err();
        assert!(
            error.contains("\"reader\"") && error.contains("think_pauses"),
            "{error}"
        );
        let error = workload("mix", &Params::new(), dir).unwrap_err();
        assert!(error.contains("zero threads"), "{error}");
        let error = workload("mix", &params(&[("readers", 1.5)]), dir).unwrap_err();
        assert!(error.contains("readers = 1.5"), "{error}");
    }

    #[test]
    fn thread_counts_follow_from_the_roles_where_a_row_lists_none() {
        let mut row = crate::example::row("mix", "std", &[("readers", 4.0), ("writers", 2.0)]);
        row.params.clear();
        assert_eq!(param(&row, "threads"), Some(6.0));
        assert!(matches(
            &row,
            "mix",
            "std",
            &params(&[("readers", 4.0), ("writers", 2.0)])
        ));
        assert!(!matches(&row, "mix", "std", &params(&[("readers", 2.0)])));
    }

    #[test]
    fn the_size_of_reads_makes_no_difference_where_nobody_reads() {
        let row = |readers: f64| {
            let list = [
                ("readers", readers),
                ("writers", 1.0),
                ("read_bytes", 4096.0),
            ];
            crate::example::row("dio-lock", "std", &list)
        };
        let wanted = params(&[("read_bytes", 65536.0)]);
        assert!(has_params(&row(0.0), &wanted));
        assert!(!has_params(&row(1.0), &wanted));
    }

    #[test]
    fn a_group_is_described_by_what_it_depends_on() {
        let words = describe(
            "dio-kernel",
            &params(&[
                ("readers", 0.0),
                ("writers", 1.0),
                ("read_bytes", 65536.0),
                ("write_bytes", 4096.0),
            ]),
        );
        assert_eq!(words, "1 writer · writes of 4 KiB");
    }
}
