//! Which lock a wait is for, from the calls that wait: the kind, the role, and what people call it.
//!
//! An address says nothing to anybody, and the kernel has no names for its locks. Their users do: the innermost call that
//! is not part of locking itself. Tables here map those calls to the locks of which a diagnosis knows something; all
//! other locks are named by that call.
//!
//! Not for: judging. What a wait for a lock means is in [`diagnoses`](super::diagnoses).

use crate::facts::Frame;

use super::found::Kind;
use super::recorded::{KERNEL, flags};

/// What a waiter wants of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// To share it.
    Read,
    /// To have it alone.
    Write,
    /// Of a lock that nobody shares, to have it.
    Lock,
}

impl Role {
    /// As reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Lock => "lock",
        }
    }
}

/// The locks that a diagnosis knows something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// A file's inode lock, at reads and writes.
    Inode,
    /// A process's mmap lock.
    Mmap,
    /// The lock of a tree of anonymous mappings that forked processes share.
    AnonVma,
    /// The lock of a file's tree of mappings.
    FileMappings,
    /// The kernel's list of processes.
    ProcessList,
    /// What belongs to an epoll instance: its ready list, its waiters.
    Epoll,
    /// Of a program.
    User,
    /// Whatever a program waits for at a futex without a call that is known: perhaps a lock of its own making.
    Unknown,
    /// Any other of the kernel.
    Other,
}

/// What the calls of a wait say.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Which {
    /// Whose lock.
    pub family: Family,
    /// What kind.
    pub kind: Kind,
    /// What the waiter wants.
    pub role: Role,
    /// The innermost call that uses the lock: `ext4_file_write_iter`, `Cache::get`; empty: not known.
    pub user: String,
    /// For a file's inode lock: the call bypasses the page cache.
    pub is_direct: bool,
    /// Each end of a wait is an acquisition: the kernel hands such a lock over.
    pub inherits_priority: bool,
}

impl Which {
    /// Whether its waiters keep their CPUs.
    pub fn spins(&self) -> bool {
        matches!(self.kind, Kind::Spin | Kind::RwSpin)
    }
}

/// Calls of the kernel that are part of locking, by how they begin.
const LOCKING: &[&str] = &[
    "__pv_queued_spin_lock_slowpath",
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "_raw_spin_lock",
    "_raw_spin_rq_lock",
    "raw_spin_rq_lock",
    "_raw_read_lock",
    "_raw_write_lock",
    "__raw_",
    "__pv_queued",
    "__lock_text",
    "rwsem_down_",
    "__down_read",
    "__down_write",
    "down_read",
    "down_write",
    "rwsem_read_trylock",
    "rwbase_",
    "rt_mutex",
    "__rt_mutex",
    "rtlock_",
    "rt_spin_lock",
    "rt_read_lock",
    "rt_write_lock",
    "slowlock",
    "mutex_lock",
    "__mutex_lock",
    "ww_mutex",
    "mutex_spin_on_owner",
    "mutex_optimistic_spin",
    "percpu_rwsem",
    "__percpu_down_read",
    "percpu_down_",
    "osq_lock",
    "lock_acquire",
    "trace_contention",
    "__traceiter_",
    "perf_trace_",
    "asm_sysvec_",
    "__lock_sock",
    "lock_mount",
];

/// Like [`LOCKING`], whole names: wrappers that only choose the lock.
const WRAPPERS: &[&str] = &[
    "inode_lock",
    "inode_lock_shared",
    "inode_lock_nested",
    "i_mmap_lock_write",
    "i_mmap_lock_read",
    "anon_vma_lock_write",
    "anon_vma_lock_read",
    "mmap_write_lock",
    "mmap_read_lock",
    "xfs_ilock",
    "xfs_ilock_iocb",
    "xfs_ilock_iocb_for_write",
    "btrfs_inode_lock",
];

const INODE_USERS: &[&str] = &[
    "_file_write_iter",
    "_file_read_iter",
    "_buffered_write_iter",
    "_dio_write_iter",
    "_dio_read_iter",
    "_file_dio_write",
    "_file_dio_read",
    "_file_buffered_write",
    "_file_buffered_read",
    "_dio_write_aligned",
    "_dio_write_unaligned",
    "_buffered_write",
    "_buffered_read",
    "_direct_write",
    "_direct_read",
    "_file_write_checks",
];
const INODE_WRAPPERS: &[&str] = &[
    "xfs_ilock",
    "xfs_ilock_iocb",
    "xfs_ilock_iocb_for_write",
    "xfs_ilock_nowait",
    "btrfs_inode_lock",
    "inode_lock",
    "inode_lock_shared",
    "netfs_start_io_read",
    "netfs_start_io_write",
    "netfs_start_io_direct",
    "nfs_start_io_read",
    "nfs_start_io_write",
    "nfs_start_io_direct",
    "fuse_lock_inode",
    "generic_file_write_iter",
];
/// With one of these above it, an inode's lock is taken for a read or write.
const FILE_CALLS: &[&str] = &[
    "vfs_read",
    "vfs_write",
    "vfs_readv",
    "vfs_writev",
    "vfs_iter_read",
    "vfs_iter_write",
    "vfs_iocb_iter_read",
    "vfs_iocb_iter_write",
    "do_iter_readv_writev",
    "do_iter_read",
    "do_iter_write",
    "new_sync_read",
    "new_sync_write",
    "io_read",
    "io_write",
    "__io_read",
    "aio_read",
    "aio_write",
    "call_read_iter",
    "call_write_iter",
];

const MMAP_USERS: &[&str] = &[
    "lock_mm_and_find_vma",
    "do_user_addr_fault",
    "do_page_fault",
    "get_mmap_lock_carefully",
    "upgrade_mmap_lock_carefully",
    "vm_mmap_pgoff",
    "vm_munmap",
    "__vm_munmap",
    "__do_sys_munmap",
    "__x64_sys_munmap",
    "__arm64_sys_munmap",
    "__do_sys_brk",
    "__x64_sys_brk",
    "do_mprotect_pkey",
    "do_madvise",
    "do_madvise.part.0",
    "madvise_lock",
    "madvise_do_behavior",
    "__do_sys_mremap",
    "__x64_sys_mremap",
    "mmap_read_lock_killable",
    "mmap_write_lock_killable",
    "mmap_read_lock",
    "mmap_write_lock",
    "vm_brk_flags",
    "exit_mmap",
    "exit_mm",
    "mm_release",
    "__get_user_pages_locked",
    "internal_get_user_pages_fast",
    "gup_fast_fallback",
    "access_remote_vm",
    "__access_remote_vm",
    "task_numa_work",
    "khugepaged",
    "khugepaged_scan_mm_slot",
    "collapse_huge_page",
    "m_start",
    "proc_get_vma",
    "expand_stack",
    "do_mlock",
    "__mm_populate",
    "populate_vma_page_range",
    "lock_vma_under_rcu",
    "userfaultfd_ioctl",
    "do_shmat",
    "ksys_mmap_pgoff",
    "fault_in_user_writeable",
    "fixup_user_fault",
    "__do_sys_process_madvise",
    "mlock_fixup",
    "apply_mlockall_flags",
    "vm_mmap",
];
const ANON_VMA_USERS: &[&str] = &[
    "anon_vma_clone",
    "anon_vma_fork",
    "unlink_anon_vmas",
    "__anon_vma_prepare",
    "__vmf_anon_prepare",
    "folio_lock_anon_vma_read",
    "page_lock_anon_vma_read",
    "rmap_walk_anon",
    "anon_vma_lock_read",
    "anon_vma_lock_write",
    "vma_adjust",
    "__vma_adjust",
    "vma_prepare",
    "hugetlb_lock_anon_vma",
    "mm_take_all_locks",
    "vm_lock_anon_vma",
    "split_huge_page_to_list_to_order",
    "__folio_split",
    "move_ptes",
    "take_rmap_locks",
];
const FILE_MAPPINGS_USERS: &[&str] = &[
    "unlink_file_vma",
    "unlink_file_vma_batch_process",
    "unlink_file_vma_batch_final",
    "vma_link",
    "vma_link_file",
    // A fork, which takes its process's mmap lock in the same function.
    "dup_mmap",
    "rmap_walk_file",
    "__rmap_walk_file",
    "unmap_mapping_range",
    "unmap_mapping_pages",
    "unmap_mapping_folio",
    "i_mmap_lock_write",
    "i_mmap_lock_read",
    "free_pgtables",
    "__vma_link_file",
    "vm_lock_mapping",
];
const PROCESS_LIST_USERS: &[&str] = &[
    "copy_process",
    "release_task",
    "do_exit",
    "exit_notify",
    "__do_wait",
    "do_wait",
    "wait_consider_task",
    "wait_task_zombie",
    "forget_original_parent",
    "kill_pgrp",
    "session_clear_tty",
    "__do_sys_prctl",
];

/// A call that is a spelling of another: parts that the compiler made, inlined copies.
fn plain(name: &str) -> &str {
    let cut = [".isra.", ".part.", ".constprop.", ".cold", ".llvm."].iter();
    let end = cut.filter_map(|suffix| name.find(suffix)).min().unwrap_or(name.len());
    &name[..end]
}

fn is_part_of_locking(name: &str) -> bool {
    LOCKING.iter().any(|start| name.starts_with(start)) || WRAPPERS.contains(&name)
}

/// Whether a call is only how a lock is taken, in the kernel or in a program.
pub fn is_locking(call: &Frame) -> bool {
    let name = call.function.as_deref().unwrap_or_default();
    match call.module.as_deref() {
        Some(KERNEL) => is_part_of_locking(plain(name)),
        _ => name.is_empty() || is_lock_wrapper(name) || name == "syscall",
    }
}

/// Which lock of the kernel a wait with these flags and calls is for.
pub fn in_kernel<'a>(bits: u32, calls: impl Iterator<Item = &'a Frame>) -> Which {
    let names: Vec<&str> = calls
        .take_while(|frame| frame.module.as_deref() == Some(KERNEL))
        .map(|frame| plain(frame.function.as_deref().unwrap_or_default()))
        .collect();
    let first = names.iter().position(|name| !is_part_of_locking(name)).unwrap_or(names.len());
    let users = &names[first..];
    let user = users.first().copied().unwrap_or_default();
    // Wrappers may be all that is between locking and the caller: the call that they belong to says more.
    let through = |list: &[&str]| names.iter().take(first + 1).any(|name| list.contains(name));
    let is_file_call = names.iter().any(|name| FILE_CALLS.contains(name));
    let is_inode = INODE_USERS.iter().any(|end| user.ends_with(end)) || through(INODE_WRAPPERS);
    let is_rwsem = bits & (flags::SPIN | flags::MUTEX) == 0;
    let family = if is_rwsem && is_inode && is_file_call {
        Family::Inode
    } else if user.starts_with("ep_") || user.starts_with("eventpoll_") || user.contains("epoll") {
        Family::Epoll
    } else if is_rwsem
        && (ANON_VMA_USERS.contains(&user)
            || through(&["anon_vma_lock_write", "anon_vma_lock_read"]))
    {
        Family::AnonVma
    } else if is_rwsem
        && (FILE_MAPPINGS_USERS.contains(&user)
            || through(&["i_mmap_lock_write", "i_mmap_lock_read"]))
    {
        Family::FileMappings
    } else if is_rwsem && through(MMAP_USERS) {
        Family::Mmap
    } else if bits & flags::SPIN != 0
        && bits & (flags::READ | flags::WRITE) != 0
        && PROCESS_LIST_USERS.contains(&user)
    {
        Family::ProcessList
    } else {
        Family::Other
    };
    let is_direct = family == Family::Inode && is_direct(&names, user, bits);
    Which {
        family,
        kind: kind(bits),
        role: role(bits),
        user: user.to_owned(),
        is_direct,
        inherits_priority: false,
    }
}

/// Whether an inode's lock is taken for I/O that bypasses the page cache. ext4 takes it for reads only then.
fn is_direct(names: &[&str], user: &str, bits: u32) -> bool {
    let says_so = names.iter().any(|name| {
        name.contains("_dio_")
            || name.contains("direct_")
            || name.ends_with("_file_dio_write")
            || name.ends_with("_file_dio_read")
    });
    says_so || (user.starts_with("ext4_") && bits & flags::READ != 0)
}

fn kind(bits: u32) -> Kind {
    let shares = bits & (flags::READ | flags::WRITE) != 0;
    match bits {
        _ if bits & flags::MUTEX != 0 => Kind::Mutex,
        _ if bits & flags::PERCPU != 0 => Kind::PercpuRwsem,
        _ if bits & flags::SPIN != 0 && shares => Kind::RwSpin,
        _ if bits & flags::SPIN != 0 => Kind::Spin,
        _ if bits & flags::RT != 0 => Kind::RtMutex,
        _ if shares => Kind::Rwsem,
        // Other sleeping locks, such as semaphores, say nothing of themselves.
        _ => Kind::Mutex,
    }
}

fn role(bits: u32) -> Role {
    match bits & (flags::READ | flags::WRITE) {
        flags::READ => Role::Read,
        flags::WRITE => Role::Write,
        _ => Role::Lock,
    }
}

/// How a lock of a program is known by a call that waits for it: part of the function's name, the kind, the role.
const USER_LOCKS: &[(&str, Kind, Role)] = &[
    ("pthread_rwlock_rdlock", Kind::UserRwlock, Role::Read),
    ("pthread_rwlock_timedrdlock", Kind::UserRwlock, Role::Read),
    ("pthread_rwlock_clockrdlock", Kind::UserRwlock, Role::Read),
    ("pthread_rwlock_wrlock", Kind::UserRwlock, Role::Write),
    ("pthread_rwlock_timedwrlock", Kind::UserRwlock, Role::Write),
    ("pthread_rwlock_clockwrlock", Kind::UserRwlock, Role::Write),
    ("rwlock::futex::RwLock::read_contended", Kind::UserRwlock, Role::Read),
    ("rwlock::futex::RwLock::write_contended", Kind::UserRwlock, Role::Write),
    ("RawRwLock::lock_shared_slow", Kind::UserRwlock, Role::Read),
    ("RawRwLock::lock_exclusive_slow", Kind::UserRwlock, Role::Write),
    ("RawRwLock::wait_for_readers", Kind::UserRwlock, Role::Write),
    ("RawRwLock::lock_upgradable_slow", Kind::UserRwlock, Role::Write),
    ("absl::Mutex::ReaderLock", Kind::UserRwlock, Role::Read),
    ("absl::Mutex::ReadLock", Kind::UserRwlock, Role::Read),
    ("SharedMutexImpl", Kind::UserRwlock, Role::Write),
    ("mutex::futex::Mutex::lock_contended", Kind::UserMutex, Role::Lock),
    ("RawMutex::lock_slow", Kind::UserMutex, Role::Lock),
    ("absl::Mutex::Lock", Kind::UserMutex, Role::Lock),
    ("pthread_mutex_lock", Kind::UserMutex, Role::Lock),
    ("pthread_mutex_timedlock", Kind::UserMutex, Role::Lock),
    ("pthread_mutex_clocklock", Kind::UserMutex, Role::Lock),
    ("__lll_lock_wait", Kind::UserMutex, Role::Lock),
    ("MutexLock::Lock", Kind::UserMutex, Role::Lock),
];

/// Calls that wait for something to happen, not for a lock.
const EVENTS: &[&str] = &[
    "pthread_cond_",
    "pthread_barrier_",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "pthread_join",
    "pthread_clockjoin",
    "pthread_timedjoin",
    "condvar::futex::Condvar",
    "thread::park",
    "thread::functions::park",
    "Parker::park",
    "Condvar::wait",
    "thread::join",
    "sync_wait",
    "Once::",
    "ThreadPark",
];

/// How far from the wait a lock's own function may be.
const DEEPEST: usize = 8;

/// Functions of glibc's malloc and free that take the lock of one of its arenas.
const MALLOC: &[&str] = &[
    "_int_free",
    "_int_malloc",
    "__GI___libc_malloc",
    "__GI___libc_free",
    "tcache_thread_shutdown",
    "arena_get2",
];

/// Whether a lock's user is the C library's allocator.
pub fn is_malloc(user: &str) -> bool {
    MALLOC.contains(&user) || ["malloc", "free", "calloc", "realloc", "cfree"].contains(&user)
}

/// Which lock of a program a wait with these calls is for; none if it is for something else.
pub fn in_program<'a>(calls: impl Iterator<Item = &'a Frame>) -> Option<Which> {
    let names: Vec<&str> =
        calls.map(|frame| frame.function.as_deref().unwrap_or_default()).collect();
    // `<std::sys::sync::rwlock::futex::RwLock>::read_contended` is what Rust calls it.
    let bare = |name: &&str| name.replace(['<', '>'], "");
    let near: Vec<String> = names.iter().take(DEEPEST).map(bare).collect();
    if let Some(place) = near.iter().position(|name| name.contains(FAIRLOCK_SLEEPS)) {
        let above = place + 1;
        return of_fairlock(&names[above..], &near[above..]);
    }
    for (place, name) in near.iter().enumerate() {
        if EVENTS.iter().any(|event| name.contains(event)) {
            return None;
        }
        let Some(&(_, kind, mut role)) = USER_LOCKS.iter().find(|(part, ..)| name.contains(part))
        else {
            continue;
        };
        // Some locks have one slow path for both roles, and say which in a call above.
        let above = near[place..].iter().take(4);
        if kind == Kind::UserRwlock
            && above.clone().any(|name| {
                ["::read", "lock_shared", "read_slow", "ReadLock"]
                    .iter()
                    .any(|part| name.contains(part))
            })
            && !name.contains("write")
        {
            role = Role::Read;
        }
        let user = user(&names[place + 1..]);
        let inherits_priority = near[..=place].iter().any(|name| name.contains("mutex_lock_full"));
        return Some(Which {
            family: Family::User,
            kind,
            role,
            user,
            is_direct: false,
            inherits_priority,
        });
    }
    let (kind, role) = (Kind::UserMutex, Role::Lock);
    let (user, family) = (user(&names), Family::Unknown);
    Some(Which { family, kind, role, user, is_direct: false, inherits_priority: false })
}

/// Whoever uses the lock that these calls are of.
fn user(names: &[&str]) -> String {
    let user = names.iter().find(|name| !name.is_empty() && !is_lock_wrapper(name));
    user.copied().unwrap_or_default().to_owned()
}

/// Where a thread sleeps in Fairlock, whatever it waits for.
const FAIRLOCK_SLEEPS: &str = "fairlock::platform::Platform::park";

/// Which of Fairlock's locks a wait is for, from the calls above the sleep; none if it is for an event.
fn of_fairlock(names: &[&str], near: &[String]) -> Option<Which> {
    const EVENTS: &[&str] = &["::condvar", "::condition_variable", "_cond", "::ready", "_poll"];
    const MUTEXES: &[&str] = &["::mutex", "_mutex"];
    // In Rust, C and C++.
    let own = || near.iter().filter_map(|name| name.strip_prefix("fairlock"));
    let begins = |name: &str, parts: &[&str]| parts.iter().any(|part| name.starts_with(part));
    // The nearest: a thread that was notified waits for the mutex, inside the call that waited for the event.
    let what = own().find(|name| begins(name, EVENTS) || begins(name, MUTEXES));
    let (kind, role) = match what {
        Some(name) if begins(name, EVENTS) => return None,
        Some(_) => (Kind::UserMutex, Role::Lock),
        // The outermost, which the program calls: a writer's inner calls may be about readers.
        None => {
            let role = own().rev().find_map(role_by_method);
            (Kind::UserRwlock, role.unwrap_or(Role::Lock))
        }
    };
    let user = user(names);
    let (family, is_direct) = (Family::User, false);
    Some(Which { family, kind, role, user, is_direct, inherits_priority: false })
}

/// What a call wants of a lock by its method's name, without the types: these may be called `ThreadPool`.
fn role_by_method(name: &str) -> Option<Role> {
    let method = name.rsplit("::").next()?;
    let has = |parts: &[&str]| parts.iter().any(|part| method.contains(part));
    match () {
        () if has(&["read", "shared"]) => Some(Role::Read),
        () if has(&["write", "exclusive", "upgrade"]) => Some(Role::Write),
        () => None,
    }
}

/// A lock's own face, and what standard libraries put around it.
fn is_lock_wrapper(name: &str) -> bool {
    const FACES: &[&str] = &[
        "pthread_",
        "lll_",
        "syscall",
        "futex_",
        "GI___lll_",
        "GI___pthread_",
        // RocksDB's and MariaDB's own wrappers.
        "rocksdb::port::",
        "rocksdb::InstrumentedMutex",
        "rocksdb::MutexLock",
        "rocksdb::ReadLock",
        "rocksdb::WriteLock",
        "inline_mysql_",
        "psi_",
        "rw_pr_",
        "ssux_lock",
        "srw_lock",
        "srw_mutex",
        "std::shared_mutex",
        "std::__shared_mutex",
        "std::shared_lock",
        "std::unique_lock",
        "std::lock_guard",
        "std::scoped_lock",
        "std::mutex",
        "__gthread_",
        "std::sync::",
        "std::sys::",
        "lock_api::",
        "parking_lot::",
        "fairlock::",
        "fairlock_cond",
        "fairlock_mutex",
        "fairlock_rwlock",
        "std::shared_timed_mutex",
        "std::recursive_mutex",
        "std::timed_mutex",
        "__shared_mutex_pthread",
    ];
    let bare = name.trim_start_matches(['<', '_']);
    FACES.iter().any(|face| bare.starts_with(face) || name.starts_with(face))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(calls: &str, module: &str) -> Vec<Frame> {
        let frame = |call: &str| Frame {
            function: Some(call.to_owned()),
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        calls.split(" < ").map(frame).collect()
    }

    /// Calls as Linux 6.18 had them, with the flags of their waits.
    #[test]
    fn calls_of_the_kernel_say_which_lock_it_is() {
        use Family::*;
        const R: u32 = flags::READ;
        const W: u32 = flags::WRITE;
        let known = [
            (W, "rwsem_down_write_slowpath < down_write < ext4_file_write_iter < vfs_write", Inode),
            (R, "rwsem_down_read_slowpath < down_read < ext4_file_read_iter < vfs_read", Inode),
            (
                W,
                "rwsem_down_write_slowpath < down_write < ext4_buffered_write_iter < vfs_write",
                Inode,
            ),
            (
                R,
                "rwsem_down_read_slowpath < down_read < xfs_ilock < xfs_file_buffered_read < vfs_read",
                Inode,
            ),
            (
                W,
                "rwsem_down_write_slowpath < down_write < shmem_file_write_iter < vfs_write",
                Inode,
            ),
            // Directories and truncation are no reads or writes.
            (W, "rwsem_down_write_slowpath < down_write < open_last_lookups < path_openat", Other),
            (
                R,
                "rwsem_down_read_slowpath < down_read < ext4_map_blocks < ext4_da_get_block_prep < vfs_write",
                Other,
            ),
            (
                R,
                "rwsem_down_read_slowpath < down_read_killable < lock_mm_and_find_vma < exc_page_fault",
                Mmap,
            ),
            (
                W,
                "rwsem_down_write_slowpath < down_write_killable < __vm_munmap < __x64_sys_munmap",
                Mmap,
            ),
            (
                W,
                "rwsem_down_write_slowpath < down_write_killable < vm_mmap_pgoff < do_syscall_64",
                Mmap,
            ),
            // A page fault inside a write waits for the mmap lock, not for the file.
            (
                R,
                "rwsem_down_read_slowpath < down_read < lock_mm_and_find_vma < exc_page_fault < vfs_write",
                Mmap,
            ),
            (
                W,
                "rwsem_down_write_slowpath < down_write < unlink_anon_vmas < free_pgtables",
                AnonVma,
            ),
            (W, "rwsem_down_write_slowpath < down_write < anon_vma_clone < anon_vma_fork", AnonVma),
            (W, "rwsem_down_write_slowpath < down_write < dup_mmap < copy_process", FileMappings),
            (
                flags::SPIN | W,
                "queued_write_lock_slowpath < copy_process < kernel_clone",
                ProcessList,
            ),
            (flags::SPIN | R, "queued_read_lock_slowpath < __do_wait < do_wait", ProcessList),
            (
                flags::SPIN,
                "__pv_queued_spin_lock_slowpath < _raw_spin_lock_irqsave < ep_poll_callback < __wake_up_common",
                Epoll,
            ),
            (
                flags::SPIN,
                "__pv_queued_spin_lock_slowpath < _raw_spin_lock_irq < do_epoll_wait < __x64_sys_epoll_wait",
                Epoll,
            ),
            (flags::MUTEX, "__mutex_lock.constprop.0 < ep_send_events < do_epoll_wait", Epoll),
            (
                flags::SPIN,
                "__pv_queued_spin_lock_slowpath < _raw_spin_lock < __schedule < schedule",
                Other,
            ),
        ];
        for (bits, calls, family) in known {
            assert_eq!(in_kernel(bits, frames(calls, KERNEL).iter()).family, family, "{calls}");
        }
    }

    #[test]
    fn direct_reads_are_told_from_those_of_the_page_cache() {
        let is_direct = |bits, calls: &str| in_kernel(bits, frames(calls, KERNEL).iter()).is_direct;
        assert!(is_direct(flags::READ, "down_read < ext4_file_read_iter < vfs_read"));
        assert!(is_direct(flags::READ, "down_read < xfs_ilock < xfs_file_dio_read < vfs_read"));
        assert!(!is_direct(
            flags::READ,
            "down_read < xfs_ilock < xfs_file_buffered_read < vfs_read"
        ));
        assert!(!is_direct(flags::WRITE, "down_write < ext4_buffered_write_iter < vfs_write"));
    }

    #[test]
    fn calls_of_a_program_say_which_lock_it_is_and_who_uses_it() {
        use Role::*;
        let known = [
            (
                "__futex_abstimed_wait_common64 < __pthread_rwlock_wrlock_full64 < ___pthread_rwlock_wrlock < publish",
                Write,
                "publish",
            ),
            (
                "__lll_lock_wait < lll_mutex_lock_optimized < ___pthread_mutex_lock < std::lock_guard<std::mutex>::lock_guard < Queue::push",
                Lock,
                "Queue::push",
            ),
            (
                "syscall < std::sys::pal::unix::futex::futex_wait < <std::sys::sync::rwlock::futex::RwLock>::read_contended < <std::sync::poison::rwlock::RwLock<T>>::read < server::look_up",
                Read,
                "server::look_up",
            ),
            (
                "syscall < <parking_lot::raw_rwlock::RawRwLock>::lock_exclusive_slow < <lock_api::rwlock::RwLock<R, T>>::write < server::update",
                Write,
                "server::update",
            ),
            (
                "syscall < <fairlock::platform::os::Os as fairlock::platform::Platform>::park < <fairlock::rwsem::RwSem<T>>::read < server::look_up",
                Read,
                "server::look_up",
            ),
            (
                "syscall < <fairlock::platform::os::Os as fairlock::platform::Platform>::park < fairlock::rwsem::slow_path::wait_for_readers < <fairlock::rwsem::RwSem<T>>::write < server::update < std::thread::lifecycle::spawn_unchecked",
                Write,
                "server::update",
            ),
            // What is inlined in C's calls may have no name.
            (
                "syscall < <fairlock::platform::os::Os as fairlock::platform::Platform>::park < fairlock_mutex_lock < put",
                Lock,
                "put",
            ),
            (
                "syscall < <fairlock::platform::os::Os as fairlock::platform::Platform>::park < fairlock_rwlock_write < update",
                Write,
                "update",
            ),
            // Notified, and now waiting for the mutex.
            (
                "syscall < <fairlock::platform::os::Os as fairlock::platform::Platform>::park < fairlock::mutex::RawMutex<P>::wait < fairlock::mutex::RawMutex<P>::lock_notified < fairlock::condvar::RawCondvar<P>::wait < server::pop",
                Lock,
                "server::pop",
            ),
        ];
        for (calls, role, user) in known {
            let which =
                in_program(frames(calls, "server").iter()).unwrap_or_else(|| panic!("{calls}"));
            assert_eq!((which.role, which.user.as_str()), (role, user), "{calls}");
        }
        for calls in [
            "__futex_abstimed_wait_common64 < ___pthread_cond_wait < Queue::pop",
            "syscall < std::thread::functions::park_timeout < worker",
            "syscall < <fairlock::platform::os::Os as fairlock::platform::Platform>::park < fairlock::condvar::RawCondvar<P>::wait < server::pop < std::thread::lifecycle::spawn_unchecked",
            "syscall < <fairlock::platform::os::Os as fairlock::platform::Platform>::park < fairlock_cond_wait < pop",
        ] {
            assert_eq!(in_program(frames(calls, "server").iter()), None, "{calls}");
        }
        for calls in ["syscall < my_lock < work", ""] {
            let which = in_program(frames(calls, "server").iter());
            assert_eq!(which.map(|which| which.family), Some(Family::Unknown), "{calls}");
        }
    }
}
