#!/bin/sh
# OpenLDAP's server answers searches: sh slapd.sh [SEARCHES-OF-EACH-CLIENT]
#
# Its pools of threads, its caches and the locks of its database are reader-writer locks of libldap,
# which are pthread_rwlock_t: an entry is read under several of them.
. "$(dirname "$0")/scratch.sh"
needs slapd slapd
needs ldapsearch ldap-utils
port=3893 people=200 searches=${1:-300}

mkdir "$folder/db"
cat >"$folder/slapd.conf" <<END
include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile $folder/slapd.pid
argsfile $folder/slapd.args
threads 4
database mdb
suffix "dc=fair,dc=test"
directory $folder/db
maxsize 67108864
dbnosync
index cn,sn eq
END
awk -v people=$people 'BEGIN {
    print "dn: dc=fair,dc=test\nobjectClass: dcObject\nobjectClass: organization\ndc: fair\no: fair\n"
    for (n = 1; n <= people; n++)
        printf "dn: cn=p%d,dc=fair,dc=test\nobjectClass: person\ncn: p%d\nsn: fair\n\n", n, n
}' >"$folder/people.ldif"
env -u LD_PRELOAD slapadd -q -f "$folder/slapd.conf" -l "$folder/people.ldif" >/dev/null
awk -v searches="$searches" -v people=$people 'BEGIN {
    for (n = 0; n < searches; n++) print "p" 1 + n * 37 % people
}' >"$folder/names"

url=ldap://127.0.0.1:$port
daemon slapd -d 0 -h "$url" -f "$folder/slapd.conf"
await ldapsearch -x -H $url -b dc=fair,dc=test -s base

began=$(date +%s%N)
clients=
for client in 1 2 3 4; do
    timeout 60 ldapsearch -x -LLL -H $url -b dc=fair,dc=test -f "$folder/names" '(cn=%s)' cn sn \
        >"$folder/found.$client" &
    clients="$clients $!"
done
for client in $clients; do wait "$client"; done
ended=$(date +%s%N)
echo "$((searches * 4 * 1000000000 / (ended - began))) searches/s" >&2
cat "$folder"/found.* | sort | uniq -c | awk '{ sum += $1 } END { print NR " different lines, " sum " in all" }'
