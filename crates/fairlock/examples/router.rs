//! A small router: threads look up where requests go, while another one changes the table. A program to record and to replay.
//!
//! ```sh
//! cargo run --release -p fairlock --features lock_api --example router -- --threads 2 --seconds 5 --lock rwlock
//! ```
//!
//! Each request finds its route in a table that all threads share, whose lock is held for reading. It reads from the
//! route, which has a lock of its own, which backend is least busy, and does some work. After one request in fifty the backends'
//! load is written down. A thread that does nothing else replaces some routes of the table every millisecond, as a
//! control plane does. What is under each lock is small, so the locks are a good part of the work.
//!
//! `--lock` is `rwlock`, `rwsem`, or `glibc`: the C library's, of which `fairlock run` sees everything.

#[cfg(unix)]
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(unix)]
use fairlock::lock_api::GuardNoSend;
use fairlock::lock_api::{RawRwLock, RwLock};

const ROUTES: u32 = 4096;
const BACKENDS: usize = 4;
/// How often the table changes, and how many routes each time.
const UPDATES_EVERY: Duration = Duration::from_millis(1);
const UPDATED: u32 = 8;

struct Route<R> {
    load: RwLock<R, [u32; BACKENDS]>,
}

struct Router<R> {
    table: RwLock<R, HashMap<u32, Arc<Route<R>>>>,
}

impl<R: RawRwLock> Route<R> {
    fn new() -> Arc<Route<R>> {
        Arc::new(Route { load: RwLock::new([0; BACKENDS]) })
    }

    fn least_busy(&self) -> usize {
        let load = self.load.read();
        (0..BACKENDS).min_by_key(|backend| load[*backend]).unwrap_or(0)
    }
}

impl<R: RawRwLock> Router<R> {
    fn new() -> Router<R> {
        let routes = (0..ROUTES).map(|number| (number, Route::new()));
        Router { table: RwLock::new(routes.collect()) }
    }

    fn route(&self, number: u32) -> Option<Arc<Route<R>>> {
        self.table.read().get(&number).cloned()
    }

    /// Serves a request, and says which backend it went to.
    fn serve(&self, number: u32, request: u64) -> Option<usize> {
        let route = self.route(number)?;
        let backend = route.least_busy();
        black_box(answer(request));
        if request % 50 == 0 {
            route.load.write()[backend] += 1;
        }
        Some(backend)
    }

    /// What the control plane does: other routes in place of some.
    fn update(&self, first: u32) {
        let fresh: Vec<_> = (0..UPDATED).map(|number| (first + number) % ROUTES).collect();
        let fresh: Vec<_> = fresh.into_iter().map(|number| (number, Route::new())).collect();
        self.table.write().extend(fresh);
    }
}

/// The work of a request, some hundreds of nanoseconds.
fn answer(request: u64) -> u64 {
    (0..16).fold(request, |answer, round: u64| {
        let mut hasher = DefaultHasher::new();
        (answer, round).hash(&mut hasher);
        hasher.finish()
    })
}

/// Requests that so many threads serve in this time.
fn run<R: RawRwLock + Send + Sync>(threads: u64, time: Duration) -> u64 {
    let router = Router::<R>::new();
    let over = AtomicBool::new(false);
    let (router, over) = (&router, &over);
    thread::scope(|scope| {
        let worker = move |seed: u64| {
            let mut served = 0;
            while !over.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    // Some routes are asked for more than others.
                    let random = answer(seed << 40 | served);
                    let number = (random as u32 % ROUTES).min((random >> 32) as u32 % ROUTES);
                    assert!(router.serve(number, random).is_some(), "no route {number}");
                    served += 1;
                }
            }
            served
        };
        let workers: Vec<_> = (0..threads)
            .map(|seed| {
                named("worker").spawn_scoped(scope, move || worker(seed)).expect("a thread")
            })
            .collect();
        let updater = move || {
            for round in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(UPDATES_EVERY);
                router.update(round * UPDATED);
            }
        };
        named("updater").spawn_scoped(scope, updater).expect("a thread");
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    })
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

/// The C library's lock.
#[cfg(unix)]
struct Glibc(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: it is made to be used by several threads at once.
#[cfg(unix)]
unsafe impl Sync for Glibc {}
// SAFETY: it is moved only while nobody uses it, when it is nothing but its first state.
#[cfg(unix)]
unsafe impl Send for Glibc {}

// SAFETY: the C library's lock excludes as lock_api asks. Threads release what they acquired, as guards are not sent.
#[cfg(unix)]
unsafe impl RawRwLock for Glibc {
    const INIT: Glibc = Glibc(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    fn lock_shared(&self) -> GuardNoSend {
        // SAFETY: it is a lock, as of INIT.
        assert_eq!(unsafe { libc::pthread_rwlock_rdlock(self.0.get()) }, 0);
        GuardNoSend::new()
    }

    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        // SAFETY: it is a lock, as of INIT.
        (unsafe { libc::pthread_rwlock_tryrdlock(self.0.get()) } == 0).then(GuardNoSend::new)
    }

    unsafe fn unlock_shared(&self, _: GuardNoSend) {
        // SAFETY: this thread has it, as the caller promises.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }

    fn lock_exclusive(&self) -> GuardNoSend {
        // SAFETY: it is a lock, as of INIT.
        assert_eq!(unsafe { libc::pthread_rwlock_wrlock(self.0.get()) }, 0);
        GuardNoSend::new()
    }

    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        // SAFETY: it is a lock, as of INIT.
        (unsafe { libc::pthread_rwlock_trywrlock(self.0.get()) } == 0).then(GuardNoSend::new)
    }

    unsafe fn unlock_exclusive(&self, _: GuardNoSend) {
        // SAFETY: this thread has it, as the caller promises.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }

    fn is_locked(&self) -> bool {
        self.try_lock_exclusive()
            .map(|held| {
                // SAFETY: acquired in the line above.
                unsafe { self.unlock_exclusive(held) }
            })
            .is_none()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.try_lock_shared()
            .map(|held| {
                // SAFETY: acquired in the line above.
                unsafe { self.unlock_shared(held) }
            })
            .is_none()
    }
}

fn main() -> ExitCode {
    let (mut threads, mut seconds, mut lock) = (2, 2.0, "rwlock".to_owned());
    let mut arguments = std::env::args().skip(1);
    while let (Some(option), value) = (arguments.next(), arguments.next().unwrap_or_default()) {
        let is_right = match option.as_str() {
            "--threads" => value.parse().map(|it| threads = it).is_ok(),
            "--seconds" => value.parse().map(|it| seconds = it).is_ok(),
            "--lock" => {
                lock = value;
                true
            }
            _ => false,
        };
        if !is_right {
            eprintln!("router: what is {option}? Use --threads N --seconds SECONDS --lock LOCK");
            return ExitCode::from(2);
        }
    }
    let run = match lock.as_str() {
        "rwlock" => run::<fairlock::RawRwLock>,
        "rwsem" => run::<fairlock::RawRwSem>,
        #[cfg(unix)]
        "glibc" => run::<Glibc>,
        _ => {
            eprintln!("router: no lock '{lock}'; it is rwlock, rwsem or glibc");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let served = run(threads, Duration::from_secs_f64(seconds));
    eprintln!("speed: {:.1} requests/s", served as f64 / began.elapsed().as_secs_f64());
    println!("router: {threads} threads");
    ExitCode::SUCCESS
}
