#!/usr/bin/env python3
"""Prints results.jsonl beside it as tables of Markdown: which programs gain by another lock, which do not, which lose."""

import json, os

# What is said beforehand, as the tables call it. Other rules say nothing of a lock's speed.
SAID = {
    "convoy": "a convoy",
    "readers-starve-writer": "readers starve a writer",
    "holders-preempted": "holders lose their CPU",
    "holders-sleep": "holders sleep",
    "read-mostly": "read-mostly and bouncing",
}

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "results.jsonl")) as lines:
    results = [json.loads(line) for line in lines]
runs = {}
for line in results:
    runs.setdefault((line["program"], line["script"], *line["arguments"]), {})[line["lock"]] = line


def times(line):
    """How many times faster: the inverse of the ratio, whose ends change places."""
    ratio = line["ratio"]
    return tuple(1 / ratio[end] for end in ("median", "high", "low"))


def kind(by_lock):
    others = [times(by_lock[lock]) for lock in ("rwsem", "rwlock") if lock in by_lock]
    if any(low > 1 for _, low, _ in others):
        return "gain"
    return "lose" if any(high < 1 for _, _, high in others) else "nothing"


def seconds(line):
    return "{median:.2f} [{low:.2f}, {high:.2f}]".format(**line["seconds"]) if line else "–"


def factor(line):
    return "{} [{}, {}]".format(*("{:.{}f}".format(it, 1 if it >= 2 else 2) for it in times(line))) if line else "–"


def said(diagnosis):
    threads = diagnosis["verdict"][0].split(" of the time of ")
    share = threads[0].rsplit(" for ", 1)[-1] if len(threads) > 1 else "0 %"
    share = "{:.2g} %".format(float(share.removesuffix(" %")))
    return "; ".join([share, *(SAID[it["rule"]] for it in diagnosis["findings"] if it["rule"] in SAID)])


def best(by_lock):
    return max(times(by_lock[lock])[0] for lock in ("rwsem", "rwlock") if lock in by_lock)


for title in ("gain", "nothing", "lose"):
    print(f"{title}:\n")
    print("| program | threads | glibc, s | rwsem, s | rwlock, s | rwsem, times faster | rwlock, times faster | beforehand |")
    print("|---|---|---|---|---|---|---|---|")
    for (program, script, *arguments), by_lock in sorted(runs.items(), key=lambda run: -best(run[1])):
        if kind(by_lock) == title:
            glibc, rwsem, rwlock = (by_lock.get(lock) for lock in ("glibc", "rwsem", "rwlock"))
            control = next(line for line in by_lock.values() if "diagnosis" in line)
            threads = str(control["threads"])
            test = " ".join(it for it in arguments if it != threads)
            cells = [f"{program} `{test}`" if test else program, threads]
            cells += [seconds(glibc), seconds(rwsem), seconds(rwlock), factor(rwsem), factor(rwlock)]
            print("| " + " | ".join([*cells, said(control["diagnosis"])]) + " |")
    print()
