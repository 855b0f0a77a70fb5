#!/bin/sh
# Kyoto Cabinet's own tests: sh kyotocabinet.sh [TEST [THREADS]]
#
# An embedded database. Each operation holds one read-write lock of the whole database for less than a
# microsecond: for reading to look at a record or to change it (records have locks of their own below it), and
# for writing to move a cursor or to begin a transaction. Some kinds of database hold it for writing to change a
# record. TEST is a kind and a load:
#
#   stash-wicked cache-wicked hash-wicked tree-wicked     all operations at random
#   stash-order cache-order hash-order tree-order         all records set, read, walked and removed, at random
#   proto-order grass-order
#
# The kinds stash, cache, proto and grass are in memory, hash and tree in a file.
. "$(dirname "$0")/scratch.sh"
needs kcstashtest kyotocabinet-utils
test=${1:-stash-wicked} threads=${2:-2}
kind=${test%-*} load=${test#*-}

# Records of each thread, so that a run takes about two seconds under the slowest lock, and options.
file= options=
case $test in
stash-wicked) records=300000 ;;
cache-wicked) records=300000 options='-capcnt 50000' ;;
hash-wicked) records=200000 file=$folder/database.kch ;;
tree-wicked) records=200000 file=$folder/database.kct ;;
stash-order) records=200000 options=-rnd ;;
cache-order) records=150000 options=-rnd ;;
proto-order) records=200000 options=-rnd ;;
grass-order) records=200000 options=-rnd ;;
hash-order) records=200000 options=-rnd file=$folder/database.kch ;;
tree-order) records=200000 options=-rnd file=$folder/database.kct ;;
*)
    echo "$0: no test '$test'; see its first lines" >&2
    exit 2
    ;;
esac

code=0
# The options come before what has no dash. The seed makes each thread ask the same in every run.
# shellcheck disable=SC2086
KCRNDSEED=7 timeout 100 "kc${kind}test" $load -th "$threads" $options $file $((records * 2 / threads)) \
    >"$folder/said" || code=$?
sed -n 's/^time: */seconds: /p' "$folder/said" >&2
echo "$test, $threads threads: $(tail -n 2 "$folder/said" | head -n 1), exit code $code"
exit $code
