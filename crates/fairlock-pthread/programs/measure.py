#!/usr/bin/env python3
"""Measures the scripts beside it: python3 measure.py --library LIB --fairlock COMMAND [--runs N] SCRIPT ARGS...

Prints a line of JSON for each lock, as they stand in results.jsonl: the median of the wall-clock seconds and an
interval of at least 95 % (from the order of the runs, which needs six of them), the ratio to the first lock with its
interval, round by round, CPU time, and how often threads went to sleep. Locks take turns, in another order each round. The
line of the first lock has what `fairlock run --lock glibc` says before any other lock is tried.

Where other programs keep the CPUs busy, threads seldom run at the same time, and locks make no difference. So a round
waits until the machine is idle, and does not count if others used the CPUs meanwhile.
"""

import argparse, json, math, os, random, statistics, subprocess, sys, tempfile, time

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

# CPUs that others may use while a run counts.
OTHERS = 0.2


def interval(sample):
    """The median, and the closest two of the sample between which the true one lies with 95 % probability."""
    ordered, count = sorted(sample), len(sample)
    outside = 0.0
    skip = -1
    while 2 * (outside := outside + math.comb(count, skip + 1) / 2**count) <= 0.05:
        skip += 1
    bounds = (ordered[skip], ordered[-1 - skip]) if skip >= 0 else (None, None)
    low, high = (None if bound is None else round(bound, 4) for bound in bounds)
    return {"median": round(statistics.median(ordered), 4), "low": low, "high": high}


def busy_seconds():
    """What all CPUs together spent on anything so far."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def await_idle(seconds=30):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        busy = busy_seconds()
        time.sleep(0.2)
        if busy_seconds() - busy <= 0.03:
            return


def spent_by_others(began, busy, own):
    """CPUs that others used since, on average."""
    return (busy_seconds() - busy - own) / (time.monotonic() - began)


class Disturbed(Exception):
    """Others used the CPUs meanwhile."""


def timed(lock):
    environment = dict(os.environ)
    if lock != "none":
        environment |= {"LD_PRELOAD": options.library, "FAIRLOCK_LOCK": lock}
    began, busy = time.monotonic(), busy_seconds()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    output = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} under {lock}: exit code {child.returncode}")
    seconds, own = time.monotonic() - began, used.ru_utime + used.ru_stime
    if spent_by_others(began, busy, own) > OTHERS:
        raise Disturbed
    return seconds, own, used.ru_nvcsw, output


def diagnosis():
    """What the report of a counted run says of the process that locked most: each rule once, of its hottest lock."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.jsonl")
        await_idle()
        began, busy = time.monotonic(), busy_seconds()
        child = subprocess.Popen(
            [options.fairlock, "run", "-q", "--lock", "glibc", "--report", report, "--", *command],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"{' '.join(command)}, counted: exit code {child.returncode}")
        if spent_by_others(began, busy, used.ru_utime + used.ru_stime) > OTHERS:
            raise Disturbed
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


def undisturbed(measure, times=8):
    """What `measure` returns once nobody disturbs it."""
    for _ in range(times):
        try:
            return measure()
        except Disturbed:
            print(f"{' '.join(command)}: disturbed, once more", file=sys.stderr)
    sys.exit(f"{' '.join(command)}: others use the CPUs")


def one_round(number):
    await_idle()
    return {lock: timed(lock) for lock in random.Random(number).sample(locks, len(locks))}


undisturbed(lambda: one_round(0))  # Warms up.
rounds = [undisturbed(lambda: one_round(number)) for number in range(1, options.runs + 1)]
if len({figures[3] for round_ in rounds for figures in round_.values()}) > 1:
    sys.exit(f"{' '.join(command)}: the output differs from run to run")

for lock in locks:
    seconds = [round_[lock][0] for round_ in rounds]
    line = {
        "program": options.program, "script": options.script[0], "arguments": options.script[1:],
        "threads": options.threads, "lock": lock, "runs": options.runs,
        "seconds": interval(seconds),
        "cpu_seconds": round(statistics.median(round_[lock][1] for round_ in rounds), 4),
        "sleeps": statistics.median(round_[lock][2] for round_ in rounds),
    }
    if lock == locks[0]:
        line["diagnosis"] = undisturbed(diagnosis)
    else:
        ratio = interval([round_[lock][0] / round_[locks[0]][0] for round_ in rounds])
        line["ratio"] = {"to": locks[0], **ratio}
    print(json.dumps(line, ensure_ascii=False))
