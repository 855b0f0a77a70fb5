#!/bin/sh
# RocksDB's own benchmark: readers beside a writer that changes values in place: sh rocksdb.sh [READS]
#
# With in-place updates each read takes one of the memtable's read locks and each update one of its
# write locks, by the key's hash.
. "$(dirname "$0")/scratch.sh"
needs db_bench rocksdb-tools
keys=1000

timeout 120 db_bench --db="$folder/db" --benchmarks=fillseq,readwhilewriting --seed=1 --num=$keys \
    --threads=1 --inplace_update_support=1 --inplace_update_num_locks=1 \
    --allow_concurrent_memtable_write=0 --disable_wal=1 --write_buffer_size=$((256 << 20)) --value_size=100 --compression_type=none \
    --threads=3 --reads="${1:-400000}" >"$folder/said" 2>"$folder/progress"
sed -n 's/^readwhilewriting *: *\(.*\) (.*/\1/p' "$folder/said" >&2
sed -n 's/^readwhilewriting .*(\(.*\)).*/\1/p' "$folder/said"
