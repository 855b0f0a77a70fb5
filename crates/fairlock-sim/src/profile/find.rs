//! The machines that are built in, and those in files.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::Profile;
use super::sheet::{Origin, ProfileError, Sheet};

macro_rules! machines {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../machines/", $name, ".toml")))),*]
    };
}

/// The files of `machines/`.
const FILES: [(&str, &str); 15] = machines![
    "ivybridge-ex-8s"
    "westmere-ex-8s"
    "ivybridge-ex-4s"
    "haswell-ex-4s"
    "westmere-ex-4s"
    "opteron-48"
    "ivybridge-ep-2s"
    "broadwell-ep-2s"
    "skylake-sp-2s"
    "cascadelake-sp-2s"
    "icelake-sp-2s"
    "epyc-milan-2s"
    "graviton3"
    "x86-12"
    "riscv-4"
];

/// The name of the machine that this program runs on.
pub const HERE: &str = "here";

/// The file of [`HERE`], in the current directory.
pub const HERE_FILE: &str = "fairlock-here.toml";

/// The names of the machines that are built in.
pub fn names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

/// Behind a machine's name: the same with one thread on each core, as if hyper-threading were off.
pub const NO_SMT: &str = ":no-smt";

/// Behind a machine's name: the same without deep idle states, as if the kernel had been told so.
pub const SHALLOW_IDLE: &str = ":shallow-idle";
/// A state that a CPU enters later than this, µs, is a deep one.
const SHALLOW_UNTIL_US: f64 = 100.0;

/// What may stand behind a machine's name, in words.
fn suffixes() -> String {
    format!(
        "behind each may stand {NO_SMT}, for one thread a core, and {SHALLOW_IDLE}, for CPUs without \
         deep idle states"
    )
}

impl Sheet {
    /// The machine whose CPUs are quick to wake, however long they have been idle.
    fn with_shallow_idle(mut self) -> Sheet {
        self.name.push_str(SHALLOW_IDLE);
        self.title.push_str(", no deep idle states");
        self.figures.retain(|figure| {
            let idle_us = figure.amount.get("idle_us").and_then(super::schema::number);
            idle_us.is_none_or(|idle_us| idle_us <= SHALLOW_UNTIL_US)
        });
        self
    }

    /// The machine with one thread on each core.
    fn without_smt(mut self) -> Sheet {
        self.name.push_str(NO_SMT);
        self.title.push_str(", one thread a core");
        self.figures.retain(|figure| figure.key.name != "line.smt");
        for figure in &mut self.figures {
            if figure.key.name == "topology.threads_per_core" {
                figure.amount =
                    [("count".to_owned(), toml::Value::Integer(1))].into_iter().collect();
                figure.origin = Origin::Assumed("hyper-threading is off".to_owned());
                figure.note.clear();
            }
        }
        self
    }

    /// A machine by its name, or by the path of its file: anything with a slash or ending in
    /// `.toml`. `here` is [`HERE_FILE`]. Behind each may stand `:no-smt`, for one thread a core, and
    /// `:shallow-idle`, for CPUs without deep idle states.
    ///
    /// # Errors
    /// An unknown name, with the valid ones; a file that cannot be read or is no machine.
    pub fn find(name_or_path: &str) -> Result<Sheet, ProfileError> {
        let changed = if let Some(whole) = name_or_path.strip_suffix(NO_SMT) {
            Some(Sheet::find(whole)?.without_smt())
        } else if let Some(whole) = name_or_path.strip_suffix(SHALLOW_IDLE) {
            Some(Sheet::find(whole)?.with_shallow_idle())
        } else {
            None
        };
        if let Some(sheet) = changed {
            sheet.profile()?;
            return Ok(sheet);
        }
        if let Some((name, text)) = FILES.iter().find(|(name, _)| *name == name_or_path) {
            return Sheet::checked(name, &format!("machines/{name}.toml"), text);
        }
        let (name, file) = match name_or_path {
            HERE => (HERE, HERE_FILE),
            path if path.contains('/') || path.ends_with(".toml") => {
                let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str());
                (stem.unwrap_or(path), path)
            }
            unknown => {
                let reason = format!(
                    "there is no machine \"{unknown}\"; valid: {}, {HERE} (after `fairlock \
                     calibrate`), or the path of a file; {}",
                    names().join(", "),
                    suffixes()
                );
                return Err(ProfileError { file: String::new(), reason });
            }
        };
        let text = fs::read_to_string(file).map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::NotFound if name == HERE => {
                    "there is no such file in this directory; run `fairlock calibrate` first"
                        .to_owned()
                }
                _ => format!("cannot read it: {error}"),
            };
            ProfileError { file: file.to_owned(), reason }
        })?;
        Sheet::checked(name, file, &text)
    }

    /// Reads a machine's text, and checks what its figures mean together.
    ///
    /// # Errors
    /// As [`parse`](Sheet::parse) and [`profile`](Sheet::profile).
    pub fn checked(name: &str, file: &str, text: &str) -> Result<Sheet, ProfileError> {
        let sheet = Sheet::parse(name, file, text)?;
        sheet.profile()?;
        Ok(sheet)
    }
}

impl Profile {
    /// As [`Sheet::find`], without the sources.
    ///
    /// # Errors
    /// The same.
    pub fn find(name_or_path: &str) -> Result<Profile, ProfileError> {
        Sheet::find(name_or_path)?.profile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_can_do_without_its_second_threads_and_deep_idle_states() {
        let whole = Profile::find("westmere-ex-4s").unwrap();
        let half = Profile::find("westmere-ex-4s:no-smt").unwrap();
        assert_eq!((whole.topology.cpus(), half.topology.cpus()), (80, 40));
        assert_eq!(half.name, "westmere-ex-4s:no-smt");
        assert_eq!(half.transfer_ns(0, 39), whole.transfer_ns(0, 79));
        let unknown = Profile::find("pdp-11:no-smt").unwrap_err().to_string();
        assert!(unknown.contains("\"pdp-11\"") && unknown.contains("no-smt"), "{unknown}");
        let shallow = Profile::find("ivybridge-ex-8s:no-smt:shallow-idle").unwrap();
        assert_eq!(shallow.topology.cpus(), 120);
        assert!(shallow.wake.idle.iter().all(|it| it.idle_ns <= 1e5 && it.p50_ns < 5e3));
        // One that has none anyway stays what it is.
        assert_eq!(Profile::find("graviton3:no-smt").unwrap().topology.cpus(), 64);
    }
}
