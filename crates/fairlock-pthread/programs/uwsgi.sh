#!/bin/sh
# uWSGI's cache, shared by its worker processes: sh uwsgi.sh [WORKERS]
#
# Each worker reads and sets entries, one in ten, as an application would. A process-shared lock in shared memory
# guards the cache: a read for each entry that is looked up, a write for each that is set.
. "$(dirname "$0")/scratch.sh"
needs uwsgi uwsgi-core uwsgi-plugin-python3
workers=${1:-2} requests=2000000

cat >"$folder/application.py" <<END
import os, signal, sys, time, uwsgi

names = ["entry %d" % number for number in range(1000)]

def work():
    began = time.monotonic()
    for request in range($requests // $workers):
        name = names[(request * 7919 + uwsgi.worker_id()) % 1000]
        if request % 10 == 0:
            uwsgi.cache_update(name, "value")
        else:
            uwsgi.cache_get(name)
    print("%.3f seconds" % (time.monotonic() - began), file=sys.stderr)
    open("$folder/ended.%d" % uwsgi.worker_id(), "w").close()
    if len([name for name in os.listdir("$folder") if name.startswith("ended.")]) == $workers:
        os.kill(uwsgi.masterpid(), signal.SIGTERM)

uwsgi.post_fork_hook = work
application = lambda environment, start: []
END
timeout 100 uwsgi --plugin python3 --master --die-on-term --processes "$workers" --disable-logging \
    --cache2 name=default,items=2000,blocksize=64 --socket "$folder/socket" --chdir "$folder" \
    --wsgi-file application.py >"$folder/said" 2>&1 || {
    cat "$folder/said" >&2
    exit 1
}
sed -n '/^[0-9.]* seconds$/p' "$folder/said" >&2
echo "$(find "$folder" -name 'ended.*' | wc -l) workers ended"
