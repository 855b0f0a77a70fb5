#!/bin/sh
# Python builds TLS contexts: sh python-tls.sh [THREADS [CONTEXTS]]
#
# Each reads the system's certificates, for which OpenSSL takes some 400 000 read locks of its own
# tables; hardly ever one is taken for writing. Reads by several threads at once only bounce the lock.
. "$(dirname "$0")/scratch.sh"
needs python3 python3 ca-certificates

timeout 120 python3 - "${1:-2}" "${2:-60}" <<'END'
import ssl, sys, threading, time

threads, contexts = int(sys.argv[1]), int(sys.argv[2])
built = []

def build(many):
    for _ in range(many):
        built.append(len(ssl.create_default_context().get_ca_certs()) > 0)

began = time.monotonic()
members = [threading.Thread(target=build, args=(contexts // threads,)) for _ in range(threads)]
for member in members:
    member.start()
for member in members:
    member.join()
seconds = time.monotonic() - began
print(f"speed: {len(built) / seconds:.1f} contexts/s", file=sys.stderr)
print(f"{len(built)} contexts, {sum(built)} with certificates")
END
