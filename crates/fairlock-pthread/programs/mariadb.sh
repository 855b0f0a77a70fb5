#!/bin/sh
# MariaDB under sysbench: sh mariadb.sh [ENGINE [TRANSACTIONS [THREADS]]], with the engine aria, myisam or innodb
#
# Without THREADS, three connections read ranges of a table while another one inserts rows. With it there are so many
# connections, each with a thread of the server; each reads ranges and inserts a row in each transaction, and TRANSACTIONS
# are those of all together.
#
# Aria and MyISAM have a reader-writer
# lock for each index, which a thread holds for reading to find a row or the next one, and for writing to
# add one. InnoDB brings locks of its own; with it little is left under pthread_rwlock_t.
. "$(dirname "$0")/scratch.sh"
needs mariadbd mariadb-server
needs mariadb-install-db mariadb-server
needs sysbench sysbench
engine=${1:-aria} transactions=${2:-3000} threads=${3:-} rows=20000

user=$(id -un)
env -u LD_PRELOAD mariadb-install-db --no-defaults --datadir="$folder/data" --user="$user" --skip-test-db \
    --auth-root-authentication-method=normal --skip-log-bin >"$folder/install.log" 2>&1
server() {
    daemon "$@" mariadbd --no-defaults --datadir="$folder/data" --user="$user" --socket="$folder/socket" \
        --skip-networking --pid-file="$folder/pid" --skip-log-bin --innodb-buffer-pool-size=64M \
        --innodb-flush-log-at-trx-commit=0 --query-cache-size=0
    await ask -e 'select 1'
}
ask() {
    mariadb --no-defaults --socket="$folder/socket" --user=root --batch --skip-column-names "$@"
}
bench() {
    timeout 100 sysbench "$@" --db-driver=mysql --mysql-socket="$folder/socket" --mysql-user=root \
        --mysql-storage-engine="$engine" --tables=1 --table-size=$rows --rand-seed=7 \
        --db-ps-mode=disable --skip-trx --time=0
}
prepare() {
    ask -e 'create database sbtest'
    bench oltp_insert prepare >/dev/null
}
if [ -n "$threads" ]; then
    # By another server, without the drop-in: what is counted and recorded is to be like the rest from the beginning.
    server env -u LD_PRELOAD
    prepare
    end_daemons
    server
    cat >"$folder/both.lua" <<LUA
-- What each connection does: ten ranges of a hundred rows are read, and a row is added.
sysbench.cmdline.options = {tables = {"", 1}, ["table-size"] = {"", 1}, ["mysql-storage-engine"] = {"", ""},
    ["skip-trx"] = {"", true}}
function thread_init()
    connection = sysbench.sql.driver():connect()
end
function event()
    for _ = 1, 10 do
        local first = sysbench.rand.uniform(1, $rows - 100)
        connection:query(string.format("select sum(k) from sbtest1 where id between %d and %d", first, first + 99))
    end
    connection:query(string.format("insert into sbtest1 (k, c, pad) values (%d, 'c', 'pad')", sysbench.rand.uniform(1, $rows)))
end
LUA
    bench "$folder/both.lua" --events="$transactions" --threads="$threads" run >"$folder/both"
    sed -n 's/^ *transactions: .*(\(.*\) per sec.*/speed: \1 transactions\/s/p' "$folder/both" >&2
    echo "$engine: $(ask -e 'select count(*) from sbtest.sbtest1; check table sbtest.sbtest1' | tr '\t\n' '  ')"
    exit
fi
server
prepare
bench oltp_insert --events=$((transactions * 2)) run >"$folder/inserts" &
inserter=$!
bench oltp_read_only --events="$transactions" --threads=3 run >"$folder/reads"
wait $inserter
for load in reads inserts; do
    sed -n "s/^ *queries: *[0-9]* *(\(.*\) per sec.*/$load: \1 queries per second/p" "$folder/$load" >&2
    sed -n "s/^ *transactions: *\([0-9]*\) .*/$load: \1 transactions/p" "$folder/$load"
done
echo "$engine: $(ask -e 'select count(*), sum(id) from sbtest.sbtest1; check table sbtest.sbtest1' | tr '\t\n' '  ')"
