//! The pollers under test. Adding a list is one line in [`registry`]'s table.

use fairlock::platform::Os;
use fairlock::ready::ReadyList;
use fairlock_reference::ready::{RwLockList, SpinList};
use fairlock_reference::spin::{RawMcs, RawQueuedRwLock, RawTtas};
use fairlock_sim::Sim;
use fairlock_sim::timed::Unpreempted;

use super::Poller;
use super::broken::Deaf;
use super::kernel::KernelEpoll;
use super::user_space::UserSpace;
use crate::error::LabError;
use crate::locks::Kind;
use crate::world::{RealWorld, SimWorld};

/// What is to be done with a poller whose type only its name says, see [`UseLock`](crate::locks::UseLock).
pub trait UsePoller {
    /// What comes of it.
    type Output;
    /// Does it with pollers of this type.
    fn with<P: Poller>(self) -> Self::Output;
}

/// A machine on which registered pollers run.
pub trait HasPollers {
    /// Does something with the pollers of this name, if they run here.
    fn with_poller<V: UsePoller>(name: &str, what: V) -> Option<V::Output>;
}

/// A registered poller.
pub struct PollerDescriptor {
    /// The name used in plans and rows.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Where it comes from. A `Reference` waits in spin locks, and real threads then wait for who was
    /// preempted there: it is run by name only, never as one of all.
    pub kind: Kind,
    /// Whether it runs on a simulated machine; the kernel's does not.
    pub is_simulated: bool,
}

macro_rules! registry {
    ($($kind:ident $name:literal $poller:ty $(, simulated: $simulated:ty)?, $about:literal;)*) => {
        /// Every registered poller, in listing order.
        pub fn registry() -> &'static [PollerDescriptor] {
            const POLLERS: &[PollerDescriptor] = &[$(PollerDescriptor {
                name: $name,
                about: $about,
                kind: Kind::$kind,
                is_simulated: registry!(@is_given $($simulated)?),
            }),*];
            POLLERS
        }

        impl HasPollers for RealWorld {
            fn with_poller<V: UsePoller>(name: &str, what: V) -> Option<V::Output> {
                match name {
                    $($name => Some(what.with::<$poller>()),)*
                    _ => None,
                }
            }
        }

        impl HasPollers for SimWorld {
            fn with_poller<V: UsePoller>(name: &str, what: V) -> Option<V::Output> {
                match name {
                    $($($name => Some(what.with::<$simulated>()),)?)*
                    _ => None,
                }
            }
        }
    };
    (@is_given) => { false };
    (@is_given $given:ty) => { true };
}

/// A list's poll, on real threads.
type On<L> = UserSpace<L>;
/// The lists as a kernel has them: nobody is preempted in their locks.
type QueuedRwLockList = UserSpace<RwLockList<Sim, Unpreempted<RawQueuedRwLock<Sim>>>>;
type McsList = UserSpace<SpinList<Sim, Unpreempted<RawMcs<Sim>>>>;
type TtasList = UserSpace<SpinList<Sim, Unpreempted<RawTtas<Sim>>>>;

registry! {
    Peer "kernel" KernelEpoll, "the kernel's epoll and an eventfd for each source, by system calls";
    Ours "ready" On<ReadyList>, simulated: On<ReadyList<Sim>>, "Poll: a list that no preempted producer holds up";
    Ours "rwlock-list" On<RwLockList>, simulated: On<RwLockList<Sim>>, "epoll's list until 2025, under a lock that spins, then sleeps: producers share it";
    Ours "spin-list" On<SpinList>, simulated: On<SpinList<Sim>>, "epoll's list since 2025, under a mutex that spins, then sleeps";
    Reference "rwlock-list-queued" On<RwLockList<Os, RawQueuedRwLock>>, simulated: QueuedRwLockList, "rwlock-list under the kernel's queued rwlock";
    Reference "spin-list-mcs" On<SpinList<Os, RawMcs>>, simulated: McsList, "spin-list under a queue of spinning threads, as the kernel's spin lock is";
    Reference "spin-list-ttas" On<SpinList<Os, RawTtas>>, simulated: TtasList, "spin-list under a lock without a queue";
    Broken "deaf" Deaf<On<ReadyList>>, simulated: Deaf<On<ReadyList<Sim>>>, "never reports its first source";
}

/// The poller of this name.
pub fn find(name: &str) -> Option<&'static PollerDescriptor> {
    registry().iter().find(|poller| poller.name == name)
}

/// The names of all that are listed and run there.
fn known(on_simulated_machine: bool) -> impl Iterator<Item = &'static PollerDescriptor> {
    let runs = move |it: &&PollerDescriptor| !on_simulated_machine || it.is_simulated;
    registry().iter().filter(|it| it.kind != Kind::Broken).filter(runs)
}

/// The names that `all` means there.
pub fn names(on_simulated_machine: bool) -> Vec<&'static str> {
    let all = known(on_simulated_machine).filter(|it| it.kind != Kind::Reference);
    all.map(|it| it.name).collect()
}

/// The poller of this name, which runs there.
///
/// # Errors
/// [`LabError::UnknownPoller`] and [`LabError::PollerNotSimulated`], with all valid names.
pub fn check(
    name: &str,
    on_simulated_machine: bool,
) -> Result<&'static PollerDescriptor, LabError> {
    let known = || known(on_simulated_machine).map(|it| it.name).collect();
    match find(name) {
        None => Err(LabError::UnknownPoller { name: name.to_string(), known: known() }),
        Some(poller) if on_simulated_machine && !poller.is_simulated => {
            Err(LabError::PollerNotSimulated { name: name.to_string(), known: known() })
        }
        Some(poller) => Ok(poller),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::KERNEL;

    #[test]
    fn an_unknown_poller_is_answered_with_the_valid_names() {
        let message = check("foo", false).err().unwrap().to_string();
        assert!(message.contains("`foo`") && message.contains("kernel, ready, "), "{message}");
        assert!(message.contains("spin-list-mcs") && !message.contains("deaf"), "{message}");
        let message = check(KERNEL, true).err().unwrap().to_string();
        assert!(message.contains("real threads only") && message.contains("ready"), "{message}");
    }

    #[test]
    fn those_that_only_spin_are_run_by_name_alone() {
        assert_eq!(names(false), ["kernel", "ready", "rwlock-list", "spin-list"]);
        assert_eq!(names(true), ["ready", "rwlock-list", "spin-list"]);
        assert!(check("spin-list-mcs", true).is_ok());
    }
}
