#!/bin/sh
# The resolver unbound answers from what it is told of its own zone: sh unbound.sh [QUESTIONS]
#
# Two threads serve what dnsperf asks over the loopback. Each question takes read locks of the zones,
# of one zone, and of the views and access lists, all shared by the threads.
. "$(dirname "$0")/scratch.sh"
needs unbound unbound
needs dnsperf dnsperf
port=5391 names=1000 asked=${1:-200000}

{
    printf 'server:\n directory: "%s"\n chroot: ""\n username: ""\n pidfile: ""\n' "$folder"
    printf ' use-syslog: no\n logfile: ""\n do-daemonize: no\n interface: 127.0.0.1@%d\n' $port
    printf ' num-threads: 2\n so-reuseport: yes\n do-ip6: no\n module-config: "iterator"\n'
    printf ' local-zone: "fair.test." static\n'
    seq -f ' local-data: "n%.0f.fair.test. IN A 192.0.2.1"' $names
    printf 'remote-control:\n control-enable: no\n'
} >"$folder/unbound.conf"
seq -f 'n%.0f.fair.test A' $names >"$folder/questions"

daemon unbound -d -c "$folder/unbound.conf"
printf 'n1.fair.test A\n' >"$folder/one"
ready() {
    dnsperf -s 127.0.0.1 -p $port -d "$folder/one" -n 1 -t 0.2 | grep -q NOERROR
}
await ready
timeout 60 dnsperf -s 127.0.0.1 -p $port -d "$folder/questions" -n $((asked / names)) -c 8 -T 2 -q 100 \
    >"$folder/answers"
sed -n 's/^ *Queries per second: */questions per second: /p' "$folder/answers" >&2
sed -n 's/^ *\(Queries sent\|Queries completed\|Response codes\): */\1: /p' "$folder/answers"
