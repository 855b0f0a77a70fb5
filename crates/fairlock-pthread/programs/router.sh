#!/bin/sh
# A program in Rust with Fairlock's locks inside, crates/fairlock/examples/router.rs: sh router.sh [THREADS [SECONDS [LOCK]]]
#
# Threads look up routes in a table and read what is known of each, while another one changes the table. LOCK is rwlock,
# rwsem, or glibc, which is a pthread_rwlock_t that the drop-in replaces, as in a program in C.
. "$(dirname "$0")/scratch.sh"
root=$(cd "$(dirname "$0")/../../.." && pwd)
router=${CARGO_TARGET_DIR:-$root/target}/release/examples/router
[ -x "$router" ] || {
    echo "$0 needs: cargo build --release -p fairlock --features lock_api --example router" >&2
    exit 77
}

timeout 100 "$router" --threads "${1:-2}" --seconds "${2:-2}" --lock "${3:-rwlock}"
