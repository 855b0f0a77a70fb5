//! The asymmetric barrier of real threads: membarrier(2), PRIVATE_EXPEDITED, where the kernel has
//! it.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

const UNKNOWN: u32 = 0;
const PRESENT: u32 = 1;
const ABSENT: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Whether the kernel has it; registers this process for it at the first call.
pub(super) fn is_asymmetric() -> bool {
    match STATE.load(Relaxed) {
        UNKNOWN => probe(),
        state => state == PRESENT,
    }
}

#[cold]
fn probe() -> bool {
    let register = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    let present = membarrier(libc::MEMBARRIER_CMD_QUERY)
        .is_some_and(|commands| commands & register as i64 != 0)
        && membarrier(register).is_some();
    STATE.store(if present { PRESENT } else { ABSENT }, Relaxed);
    present
}

/// A full barrier on every CPU that runs a thread of this process.
pub(super) fn heavy() {
    let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    assert!(done.is_some(), "the kernel refuses the barrier that it promised");
}

fn membarrier(command: libc::c_int) -> Option<i64> {
    // SAFETY: the call takes integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    (result >= 0).then_some(result)
}
