#!/usr/bin/env python3
"""Measures the scripts beside it: python3 measure.py --library LIB --fairlock COMMAND [--runs N] SCRIPT ARGS...

Prints a line of JSON for each lock, as they stand in results.jsonl: the median of the wall-clock seconds and an
interval of at least 95 % (from the order of the runs, which needs six of them), the ratio to the first lock with its
interval, round by round, CPU time, and how often threads went to sleep. Locks take turns, in another order each round. The
line of the first lock has what `fairlock run --lock glibc` says before any other lock is tried. What rounds count says rounds.py.
"""

import argparse, json, os, random, statistics, sys, tempfile

import rounds
from rounds import interval

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--library", required=True, help="the drop-in, libfairlock_pthread.so")
parser.add_argument("--fairlock", required=True, help="the command fairlock, for the diagnosis")
parser.add_argument("--locks", default="glibc,rwsem,rwlock", help="the first is the one that others are compared with")
parser.add_argument("--runs", type=int, default=9)
parser.add_argument("--program", required=True, help="what the lines call the program")
parser.add_argument("--threads", type=int, required=True, help="how many threads the lines say it has")
parser.add_argument("script", nargs=argparse.REMAINDER)
options = parser.parse_args()
locks = options.locks.split(",")
command = ["sh", *options.script]


def timed(lock):
    environment = {}
    if lock != "none":
        environment = {"LD_PRELOAD": options.library, "FAIRLOCK_LOCK": lock}
    finished = rounds.run(command, environment)
    return finished.seconds, finished.cpu_seconds, finished.sleeps, finished.output


def diagnosis():
    """What the report of a counted run says of the process that locked most: each rule once, of its hottest lock."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.jsonl")
        rounds.await_idle()
        rounds.run([options.fairlock, "run", "-q", "--lock", "glibc", "--report", report, "--", *command])
        with open(report) as lines:
            facts = [json.loads(line) for line in lines]
    processes = [fact["process"] for fact in facts if "process" in fact]
    most = max(processes, key=lambda process: process["acquired"])
    locks_of_most = [fact["lock"] for fact in facts if fact.get("lock", {}).get("pid") == most["pid"]]
    findings = {}
    for finding in (finding for lock in locks_of_most for finding in lock["findings"]):
        findings.setdefault(finding["rule"], finding["text"])
    return {
        "acquired": most["acquired"], "waited": most["waited"], "wait_s": round(most["wait_ns"] / 1e9, 4),
        "run_s": round(most["elapsed_ns"] / 1e9, 4),
        "verdict": [finding["text"] for finding in most["findings"]],
        "findings": [{"rule": rule, "text": text} for rule, text in findings.items()],
    }


def undisturbed(measure):
    return rounds.undisturbed(measure, " ".join(command))


def one_round(number):
    rounds.await_idle()
    return {lock: timed(lock) for lock in random.Random(number).sample(locks, len(locks))}


undisturbed(lambda: one_round(0))  # Warms up.
measured = [undisturbed(lambda: one_round(number)) for number in range(1, options.runs + 1)]
if len({figures[3] for round_ in measured for figures in round_.values()}) > 1:
    sys.exit(f"{' '.join(command)}: the output differs from run to run")

for lock in locks:
    seconds = [round_[lock][0] for round_ in measured]
    line = {
        "program": options.program, "script": options.script[0], "arguments": options.script[1:],
        "threads": options.threads, "lock": lock, "runs": options.runs,
        "seconds": interval(seconds),
        "cpu_seconds": round(statistics.median(round_[lock][1] for round_ in measured), 4),
        "sleeps": statistics.median(round_[lock][2] for round_ in measured),
    }
    if lock == locks[0]:
        line["diagnosis"] = undisturbed(diagnosis)
    else:
        ratio = interval([round_[lock][0] / round_[locks[0]][0] for round_ in measured])
        line["ratio"] = {"to": locks[0], **ratio}
    print(json.dumps(line, ensure_ascii=False))
