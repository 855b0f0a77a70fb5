#!/bin/sh
# GLib's own test of its locks: sh glib.sh [TESTS], such as "rwlock7"
#
# rwlock7: a hundred threads write under 48 locks, and each gives its CPU away three times while it holds one.
. "$(dirname "$0")/scratch.sh"
tests=/usr/libexec/installed-tests/glib
PATH=$PATH:$tests
needs rwlock libglib2.0-tests

for test in ${*:-rwlock7}; do
    timeout 100 rwlock -p "/thread/$test" >"$folder/said" 2>&1 || {
        cat "$folder/said"
        exit 1
    }
    grep '^ok' "$folder/said"
done
