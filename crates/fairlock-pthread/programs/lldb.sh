#!/bin/sh
# The debugger LLDB reads the debug information of a C++ program: sh lldb.sh [CLASSES]
#
# As many threads as there are CPUs index it. They keep all names in tables with 256 read-write locks: a read for a name
# that is known, a write for one that is new.
. "$(dirname "$0")/scratch.sh"
needs lldb-14 lldb-14
needs c++ g++
classes=${1:-1000}

for part in 1 2 3 4; do
    {
        echo '#include <map>'
        echo '#include <string>'
        for class in $(seq $((classes / 4))); do
            name=Part${part}Class$class
            echo "struct $name { std::map<std::string, int> $name; int of_$class(int it) { return it + $class; } };"
            echo "int use_$name($name &it) { return it.of_$class($part); }"
        done
    } >"$folder/part$part.cpp"
    env -u LD_PRELOAD c++ -g -c -o "$folder/part$part.o" "$folder/part$part.cpp" &
    parts="${parts:-} $!"
done
for part in $parts; do
    wait "$part"
done
echo 'int main() { return 0; }' >"$folder/main.cpp"
env -u LD_PRELOAD c++ -g -o "$folder/program" "$folder/main.cpp" "$folder"/part*.o
timeout 100 lldb-14 --no-lldbinit --batch -o 'image lookup --function use_Part2Class7' "$folder/program" \
    >"$folder/said" 2>&1
grep -c 'use_Part2Class7' "$folder/said"
