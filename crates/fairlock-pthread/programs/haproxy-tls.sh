#!/bin/sh
# HAProxy does TLS handshakes: sh haproxy-tls.sh [THREADS [HANDSHAKES]]
#
# Each connection is a new one with a full handshake of TLS 1.3: no session is resumed. Certificates are ECDSA P-256, so the
# arithmetic is cheap and OpenSSL's locks are much of what is left: tables of algorithms, and each object's own.
#
# The client (tls-client.c) runs without the drop-in, but on the same CPUs. It takes half as much time of them as the
# server. So with as many threads as there are CPUs, the server's threads do not run all the time. What is
# printed as the speed leaves out the time in which they could have run and had no CPU, as the kernel counts it: it is the speed
# of a server that has its CPUs for itself. Time in which they sleep, in locks or without a client to serve, counts. The
# elapsed speed, which is printed as well, is that of both.
. "$(dirname "$0")/scratch.sh"
needs haproxy haproxy
needs openssl openssl
needs cc gcc libc6-dev libssl-dev
threads=${1:-2} handshakes=${2:-6000} port=5443

env -u LD_PRELOAD cc -O2 -o "$folder/tls-client" "$(dirname "$0")/tls-client.c" -lcrypto
env -u LD_PRELOAD openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
    -subj /CN=localhost -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2>"$folder/openssl.log"
cat "$folder/key.pem" "$folder/certificate.pem" >"$folder/server.pem"
cat >"$folder/haproxy.cfg" <<CFG
global
    nbthread $threads
    maxconn 256
    tune.ssl.cachesize 0
    ssl-default-bind-options no-tls-tickets
defaults
    mode http
    timeout client 10s
    timeout connect 10s
    timeout server 10s
frontend tls
    bind 127.0.0.1:$port ssl crt $folder/server.pem
    http-request return status 200
CFG
daemon haproxy -db -f "$folder/haproxy.cfg"
client() {
    env -u LD_PRELOAD timeout 100 "$folder/tls-client" $port $((4 * threads)) "$@"
}
await client 1
# Nanoseconds in which the server's threads waited for a CPU.
waited() {
    cat /proc/"${daemons# }"/task/*/schedstat | awk '{ waited += $2 } END { printf "%.0f", waited }'
}
before=$(waited)
client "$handshakes" >"$folder/said"
after=$(waited)
awk -v waited=$((after - before)) -v threads="$threads" '{
    printf "speed: %.1f handshakes/s\n", $1 / ($4 - waited / 1e9 / threads)
    printf "elapsed: %.1f handshakes/s\n", $1 / $4
}' "$folder/said" >&2
echo "$threads threads: $(cut -d' ' -f1,2 "$folder/said")"
