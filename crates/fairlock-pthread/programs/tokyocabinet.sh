#!/bin/sh
# Tokyo Cabinet's own tests: sh tokyocabinet.sh [KIND-LOAD [THREADS]]
#
# An embedded database. Each operation holds one read-write lock of the whole database: for reading to look at a
# record, and for reading or writing, by kind, to change one. KIND is hash, tree, fixed or table, all in a file,
# or memory. LOAD is typical (each thread reads and sets records
# of all threads, at random), write or wicked.
. "$(dirname "$0")/scratch.sh"
needs tchmttest tokyocabinet-bin
test=${1:-hash-typical} threads=${2:-2}
kind=${test%-*} load=${test#*-}

# Records of each thread, so that a run takes about two seconds under the slowest lock.
case $test in
hash-typical | fixed-typical) records=200000 ;;
tree-typical) records=100000 ;;
table-typical) records=20000 ;;
memory-typical) records=1000000 ;;
tree-write) records=200000 ;;
hash-wicked) records=50000 ;;
*)
    echo "$0: no test '$test'; see its first lines" >&2
    exit 2
    ;;
esac
case $kind in
memory) program=tcumttest file= ;;
hash) program=tchmttest file=$folder/database.tch ;;
tree) program=tcbmttest file=$folder/database.tcb ;;
fixed) program=tcfmttest file=$folder/database.tcf ;;
table) program=tctmttest file=$folder/database.tct ;;
esac

code=0
# shellcheck disable=SC2086
timeout 100 $program $load $file "$threads" $((records * 2 / threads)) >"$folder/said" || code=$?
sed -n 's/^time: */seconds: /p' "$folder/said" >&2
echo "$test, $threads threads: $(tail -n 2 "$folder/said" | head -n 1), exit code $code"
exit $code
