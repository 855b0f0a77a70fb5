#!/bin/sh
# RocksDB's own benchmark: sh rocksdb.sh [THREADS [OPERATIONS [LOAD]]]
#
# Values are changed in place, so each read takes one of the memtable's read locks and each update one of its
# write locks, by the key's hash; here there is but one. LOAD is
#
#   writer   threads read beside another one that writes all the time (the default)
#   mixed    each thread reads in nine of ten operations, and writes in the others
#
# OPERATIONS are those of each of the THREADS threads.
. "$(dirname "$0")/scratch.sh"
needs db_bench rocksdb-tools
threads=${1:-3} operations=${2:-400000} keys=1000
case ${3:-writer} in
writer) load=readwhilewriting ;;
mixed) load=readrandomwriterandom ;;
*)
    echo "$0: no load '$3'; it is writer or mixed" >&2
    exit 2
    ;;
esac

timeout 120 db_bench --db="$folder/db" --benchmarks=fillseq,$load --seed=1 --num=$keys \
    --threads=1 --inplace_update_support=1 --inplace_update_num_locks=1 \
    --allow_concurrent_memtable_write=0 --disable_wal=1 --write_buffer_size=$((256 << 20)) --value_size=100 --compression_type=none \
    --threads="$threads" --reads="$operations" --readwritepercent=90 >"$folder/said" 2>"$folder/progress"
sed -n "s/^$load *:.* \([0-9]*\) ops.sec.*/speed: \1 operations\/s/p" "$folder/said" >&2
sed -n "s/^$load .*(\(.*\)).*/\1/p" "$folder/said"
