//! With a lock of the registry between the threads.

use super::{HIGH, InversionForm, InversionParams, LOW, contest, executed};
use crate::error::{LabError, Violation};
use crate::locks::{self, INHERITING, LabLock, Protected};
use crate::measure::Repetition;
use crate::units::Length;
use crate::workloads::{Request, broken};
use crate::world::World;

/// All but those that only spin, and the mutexes that exist to be compared here.
pub(super) fn all(simulated: bool) -> Vec<&'static str> {
    let all = if simulated { locks::all_simulated() } else { locks::all() };
    let more = INHERITING.into_iter().filter(|name| check(name, simulated).is_ok());
    all.into_iter().chain(more).collect()
}

pub(super) fn check(name: &str, simulated: bool) -> Result<(), LabError> {
    let lock = if simulated { locks::find_simulated(name)? } else { locks::find(name)? };
    if lock.only_spins() {
        let workload = InversionForm::Lock.name();
        return Err(LabError::Spins { name: name.to_string(), workload });
    }
    Ok(())
}

/// Runs `inversion-lock` once on a fresh lock.
///
/// # Errors
/// When the lock breaks the invariant, or real-time threads cannot be started.
pub(crate) fn run<W: World, L: LabLock>(
    request: &Request<'_, W>,
    params: &InversionParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = L::new(Protected::new());
    let section = Length::Nanoseconds(params.work_ns).pauses(world.pause_ns());
    let work = || {
        if params.low_reads {
            lock.read(|data| data.read_around(|| world.compute(section)))?;
        } else {
            lock.write(|data| data.write_around(|| world.compute(section)))?;
        }
        Ok(1)
    };
    let visit = |(): &mut ()| {
        let (got, result) = if params.high_reads {
            lock.read(|data| (world.now(), data.read_around(|| ())))
        } else {
            lock.write(|data| (world.now(), data.write_around(|| ())))
        };
        result?;
        Ok(got)
    };
    let mut repetition = contest(request, params, &work, &|| (), &visit)?;
    let of = |role, reads: bool| if reads { 0 } else { executed(&repetition, role) };
    let writes = of(LOW, params.low_reads) + of(HIGH, params.high_reads);
    let value = lock.read(Protected::value);
    let lost = |counted| Violation::LostUpdate { writes, counted };
    match value {
        Ok(counted) if counted == writes => {}
        Ok(counted) => return Err(broken(request.lock, params.form.name(), lost(counted))),
        Err(violation) => return Err(broken(request.lock, params.form.name(), violation)),
    }
    repetition.events = lock.events();
    Ok(repetition)
}
