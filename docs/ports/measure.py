#!/usr/bin/env python3
"""Measures a crate's own benchmarks before and after its port: docs/ports/measure.py FOLDER --bench NAME [-- ARGS...]

FOLDER is what `docs/ports/unpack` made. Both programs run in turns, in another order each round, as other programs and the
CPU's clock make runs of different moments differ. ARGS go to Criterion, for instance a filter.

Prints for each benchmark the median of the rounds' times, and of after / before, round by round, with the lowest and the
highest. A ratio below 1 says that the port is faster. The load is how many threads wanted a CPU meanwhile.
"""

import argparse, json, os, re, statistics, subprocess, sys
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path)
parser.add_argument("--bench", required=True, help="the benchmark program's name")
parser.add_argument("--features", default="", help="what Cargo enables in both")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", default="1", help="of each measurement, and of warming up before it")
parser.add_argument("--only-build", action="store_true")
own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
arguments = sys.argv[len(own) + 2 :]
options = parser.parse_args(own)

UNITS = {"ps": 1e-3, "ns": 1, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}
# Criterion's "NAME   time:   [LOW ns MEDIAN ns HIGH ns]"; a long name is on the line before.
TIME = re.compile(r"^(.*?)\s*time:\s+\[\S+ \S+ ([\d.]+) (\S+) \S+ \S+\]")


def build(which):
    command = ["cargo", "bench", "--no-run", "--message-format=json", "--bench", options.bench]
    command += ["--features", options.features]
    built = subprocess.run(command, cwd=options.folder / which, stdout=subprocess.PIPE, text=True, check=True)
    messages = map(json.loads, filter(lambda line: line.startswith("{"), built.stdout.splitlines()))
    return [message["executable"] for message in messages if message.get("executable")][-1]


def measure(which, program):
    """Nanoseconds of each benchmark."""
    command = [program, "--bench", "--noplot", "--warm-up-time", options.seconds, "--measurement-time", options.seconds]
    folder = options.folder / which
    run = subprocess.run(command + arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"{program} failed: {run.stderr}")
    times = {}
    name = ""
    for line in run.stdout.splitlines():
        found = TIME.match(line)
        if found:
            times[found[1] or name] = float(found[2]) * UNITS[found[3]]
        elif line.strip() and not line[0].isspace():
            name = line.strip()
    return times


def shown(ns):
    unit = next(unit for unit in ("s", "ms", "µs", "ns") if ns >= UNITS[unit] or unit == "ns")
    return f"{ns / UNITS[unit]:.3g} {unit}"


programs = {which: build(which) for which in ("before", "after")}
if options.only_build:
    sys.exit()
loads = []
rounds = []
for number in range(options.rounds):
    order = sorted(programs, reverse=number % 2 == 0)
    rounds.append({which: measure(which, programs[which]) for which in order})
    loads.append(os.getloadavg()[0])

print(f"{options.folder.name} {options.bench}: {options.rounds} rounds, load {min(loads):.1f} to {max(loads):.1f}")
print("| benchmark | before | after | after / before |\n|---|---|---|---|")
for name in rounds[0]["before"]:
    before, after = ([times[which][name] for times in rounds] for which in ("before", "after"))
    ratios = sorted(late / early for early, late in zip(before, after))
    middle = statistics.median(ratios)
    row = name, shown(statistics.median(before)), shown(statistics.median(after))
    print("| " + " | ".join(row) + f" | {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |")
