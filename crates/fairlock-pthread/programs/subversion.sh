#!/bin/sh
# Subversion's server under its own benchmark: sh subversion.sh [EXPORTS]
#
# Four clients at a time export a tree of 500 files. The server has a thread for each, and they share a cache of
# what they read, whose parts have a read-write lock each.
. "$(dirname "$0")/scratch.sh"
needs svnserve subversion
needs svnbench subversion-tools
exports=${1:-20} port=3691

svnadmin create "$folder/repository"
printf '[general]\nanon-access = read\n' >"$folder/repository/conf/svnserve.conf"
for directory in 1 2 3 4 5 6 7 8 9 10; do
    mkdir -p "$folder/tree/$directory"
    for file in $(seq 50); do
        seq $((directory * file)) $((directory * file + 300)) >"$folder/tree/$directory/$file"
    done
done
svn import -q -m imported "$folder/tree" "file://$folder/repository/tree"

daemon svnserve --daemon --foreground --threads --memory-cache-size 256 --root "$folder" \
    --listen-host 127.0.0.1 --listen-port $port
tree=svn://127.0.0.1:$port/repository/tree
await svnbench null-info "$tree"
clients=
for client in 1 2 3 4; do
    for _ in $(seq "$exports"); do
        svnbench null-export "$tree" | grep -E 'directories|files' | sort -u
    done >"$folder/client.$client" &
    clients="$clients $!"
done
for client in $clients; do
    wait "$client"
done
sort "$folder"/client.* | uniq -c
