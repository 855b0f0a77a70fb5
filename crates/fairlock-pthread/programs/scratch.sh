# Read by the scripts beside it: a folder, and daemons, that are gone when the script ends.
set -eu
PATH=$PATH:/usr/sbin:/sbin
# In memory, if there is room for it: what a drive takes is not what is to be compared.
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || TMPDIR=/dev/shm
folder=$(mktemp -d "${TMPDIR:-/tmp}/fairlock-program.XXXXXX")
daemons=

# needs PROGRAM PACKAGE...: ends the script if the program is not installed.
needs() {
    command -v "$1" >/dev/null && return
    shift
    echo "$0 needs: apt-get install $*" >&2
    exit 77
}

# Runs a daemon, which stays in the foreground and is not told of a terminal.
daemon() {
    "$@" >"$folder/daemon.log" 2>&1 </dev/null &
    daemons="$daemons $!"
}

# Until the command succeeds: half a minute at most, and no longer than the daemons live.
await() {
    tries=600
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        for daemon in $daemons; do
            [ $tries -gt 0 ] && kill -0 "$daemon" 2>/dev/null || {
                echo "$0: not ready: $*" >&2
                cat "$folder/daemon.log" >&2
                exit 1
            }
        done
        sleep 0.05
    done
}

# Asks the daemons to end, and sees to it that they do.
end_daemons() {
    for daemon in $daemons; do
        kill "$daemon" 2>/dev/null || :
        tries=200
        while [ $tries -gt 0 ] && kill -0 "$daemon" 2>/dev/null; do
            tries=$((tries - 1))
            sleep 0.05
        done
        [ $tries -gt 0 ] || {
            echo "$0: daemon $daemon did not end in 10 s and was killed" >&2
            kill -KILL "$daemon"
            failed=1
        }
        wait "$daemon" || :
    done
    daemons=
}

failed=
end() {
    code=$?
    trap - EXIT
    end_daemons
    rm -rf "$folder"
    [ -z "$failed" ] || exit 1
    exit $code
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
