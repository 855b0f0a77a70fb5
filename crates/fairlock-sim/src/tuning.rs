//! Other values for the constants of the locks, for one run: what if a phase were longer, or a spin shorter?
//!
//! The constants are those that [`fairlock::tunables`] lists, and the code that reads them is the code that real threads
//! run. A [`Tuning`] is part of a run's [`Setup`](crate::timed::Setup). It holds for that run only, on the real thread
//! that the run is on. Without one, locks use the values that real threads use.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr;

use fairlock::platform::Tunable;

/// Values for some of the [constants](fairlock::tunables), by name.
///
/// ```
/// use fairlock_sim::tuning::Tuning;
/// let tuning = Tuning::new([("slack".to_owned(), 16)]).unwrap();
/// assert!(tuning.iter().eq([("slack", 16)]));
/// let error = Tuning::new([("slack".to_owned(), 1_000_000)]).unwrap_err();
/// assert_eq!(error, "slack is 1000000: it may be from 1 to 1024");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The constants with their values, in the order of their names.
    constants: Vec<Tunable>,
}

impl Tuning {
    /// A value for each of the names.
    ///
    /// # Errors
    /// If there is no such constant, if a name comes twice, or if a value is out of the constant's bounds: which, and
    /// what is allowed.
    pub fn new(pairs: impl IntoIterator<Item = (String, u32)>) -> Result<Self, String> {
        let mut constants = BTreeMap::new();
        for (name, value) in pairs {
            let known = fairlock::tunables();
            let Some(constant) = known.iter().find(|it| it.name() == name) else {
                let mut names: Vec<_> = known.iter().map(Tunable::name).collect();
                names.sort_unstable();
                return Err(format!("there is no constant {name}: use {}", names.join(", ")));
            };
            let bounds = constant.bounds();
            if !bounds.contains(&value) {
                let (least, most) = bounds.into_inner();
                return Err(format!("{name} is {value}: it may be from {least} to {most}"));
            }
            if constants.insert(constant.name(), constant.with_value(value)).is_some() {
                return Err(format!("{name} is given twice: give it one value"));
            }
        }
        Ok(Tuning { constants: constants.into_values().collect() })
    }

    /// Whether all constants have their usual values.
    pub fn is_empty(&self) -> bool {
        self.constants.is_empty()
    }

    /// The names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.constants.iter().map(|constant| (constant.name(), constant.value()))
    }

    #[cold]
    fn value_of(&self, id: u64) -> Option<u32> {
        self.constants.iter().find(|it| it.id() == id).map(Tunable::value)
    }
}

thread_local! {
    /// Of the run under way on this real thread; null if it has none, and outside a run.
    static TUNING: Cell<*const Tuning> = const { Cell::new(ptr::null()) };
}

/// The run that begins now has this tuning, until what this returns is dropped.
pub(crate) fn begin(tuning: Option<&Tuning>) -> UntilTheEnd<'_> {
    let pointer = tuning.filter(|it| !it.is_empty()).map_or(ptr::null(), ptr::from_ref);
    UntilTheEnd { before: TUNING.replace(pointer), _tuning: tuning }
}

/// While it is there, locks have the tuning that it borrows. It is dropped also when a panic passes.
pub(crate) struct UntilTheEnd<'a> {
    before: *const Tuning,
    _tuning: Option<&'a Tuning>,
}

impl Drop for UntilTheEnd<'_> {
    fn drop(&mut self) {
        TUNING.set(self.before);
    }
}

/// What a constant is in the run under way on this real thread. Most runs have no tuning.
#[inline(always)]
pub(crate) fn value(constant: Tunable) -> u32 {
    let tuning = TUNING.get();
    if tuning.is_null() {
        return constant.value();
    }
    // SAFETY: not null, so an `UntilTheEnd` that borrows the tuning is still there: `timed::run` keeps it below on this real
    // thread's stack.
    unsafe { &*tuning }.value_of(constant.id()).unwrap_or(constant.value())
}
