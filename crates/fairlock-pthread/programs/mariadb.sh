#!/bin/sh
# MariaDB under sysbench: sh mariadb.sh [ENGINE [TRANSACTIONS]], with the engine aria, myisam or innodb
#
# Threads read ranges of a table while another one inserts rows. Aria and MyISAM have a reader-writer
# lock for each index, which a thread holds for reading to find a row or the next one, and for writing to
# add one. InnoDB brings locks of its own; with it little is left under pthread_rwlock_t.
. "$(dirname "$0")/scratch.sh"
needs mariadbd mariadb-server
needs mariadb-install-db mariadb-server
needs sysbench sysbench
engine=${1:-aria} transactions=${2:-3000} rows=20000

user=$(id -un)
env -u LD_PRELOAD mariadb-install-db --no-defaults --datadir="$folder/data" --user="$user" --skip-test-db \
    --auth-root-authentication-method=normal --skip-log-bin >"$folder/install.log" 2>&1
daemon mariadbd --no-defaults --datadir="$folder/data" --user="$user" --socket="$folder/socket" \
    --skip-networking --pid-file="$folder/pid" --skip-log-bin --innodb-buffer-pool-size=64M \
    --innodb-flush-log-at-trx-commit=0 --query-cache-size=0
ask() {
    mariadb --no-defaults --socket="$folder/socket" --user=root --batch --skip-column-names "$@"
}
await ask -e 'select 1'
ask -e 'create database sbtest'
bench() {
    timeout 100 sysbench "$@" --db-driver=mysql --mysql-socket="$folder/socket" --mysql-user=root \
        --mysql-storage-engine="$engine" --tables=1 --table-size=$rows --rand-seed=7 \
        --db-ps-mode=disable --skip-trx --time=0
}
bench oltp_insert prepare >/dev/null
bench oltp_insert --events=$((transactions * 2)) run >"$folder/inserts" &
inserter=$!
bench oltp_read_only --events="$transactions" --threads=3 run >"$folder/reads"
wait $inserter
for load in reads inserts; do
    sed -n "s/^ *queries: *[0-9]* *(\(.*\) per sec.*/$load: \1 queries per second/p" "$folder/$load" >&2
    sed -n "s/^ *transactions: *\([0-9]*\) .*/$load: \1 transactions/p" "$folder/$load"
done
echo "$engine: $(ask -e 'select count(*), sum(id) from sbtest.sbtest1; check table sbtest.sbtest1' | tr '\t\n' '  ')"
