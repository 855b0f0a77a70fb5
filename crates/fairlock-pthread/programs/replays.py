#!/usr/bin/env python3
"""Measures whether replays are like the programs: python3 replays.py --fairlock COMMAND --out FILE [--rounds N]

Writes a line of JSON for each result to FILE, of which replays_table.py makes tables. What FILE has already is left out, so a run
that was cut short goes on. Recordings and the machine's profile stay in the folder FILE.d. For each program, with 1 and 2 threads:

* real: its speed under each lock, and counted, and recorded; in rounds, in which they take turns.
* acquisitions: how many its operation takes: the difference between a long and a short run, counted.
* replay: of each round's recording, under each lock, on real threads and simulated; those with one thread also with two.

At the end the hottest program is recorded for a minute. --dry tries all that, short and once, on a machine that may be busy.
"""

import argparse, json, os, random, re, statistics, subprocess, sys, tempfile, tomllib

import rounds

HERE = os.path.dirname(os.path.abspath(__file__))
LOCKS = ["glibc", "rwsem", "rwlock"]
THREADS = [1, 2]
# Repetitions of each recording's replay. Each takes as long as what was recorded, so that it has all of it, wherever it begins.
REPETITIONS = 2
# That of which a minute is recorded.
HOTTEST = "python"


class Program:
    """A script, and how much of it is a run of about five seconds by one thread.

    `each`: whether the amount is that of each thread. `inside`: whether Fairlock's locks are linked into it, so that the lock is
    an argument, and it is recorded under Fairlock's own; others are recorded under glibc's."""

    def __init__(self, script, amount, arguments, each=False, timed=False, inside=False):
        self.script, self.amount, self.arguments = script, amount, arguments
        self.each, self.timed, self.inside = each, timed, inside
        self.recorded_under = "rwlock" if inside else "glibc"

    def command(self, threads, share, lock=None):
        amount = self.of(threads, share)
        arguments = self.arguments(threads, amount) + ([lock or self.recorded_under] if self.inside else [])
        return ["sh", os.path.join(HERE, self.script), *map(str, arguments)]

    def of(self, threads, share):
        times = 1 if self.each or self.timed else threads
        return max(self.amount * times * share, 1) if self.timed else max(int(self.amount * times * share), threads)

    def operations(self, threads, share, speed):
        amount = self.of(threads, share)
        return speed * amount if self.timed else amount * (threads if self.each else 1)


PROGRAMS = {
    "python": Program("python-tls.sh", 240, lambda threads, amount: [threads, amount // threads * threads]),
    "haproxy": Program("haproxy-tls.sh", 8000, lambda threads, amount: [threads, amount]),
    "rocksdb": Program("rocksdb.sh", 2_500_000, lambda threads, amount: [threads, amount, "mixed"], each=True),
    "mariadb": Program("mariadb.sh", 2500, lambda threads, amount: ["aria", amount, threads]),
    "router": Program("router.sh", 5, lambda threads, amount: [threads, amount], timed=True, inside=True),
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fairlock", default="fairlock", help="the command, with the drop-in beside it or in deps/")
parser.add_argument("--library", help="the drop-in, libfairlock_pthread.so, if it is elsewhere")
parser.add_argument("--out", required=True, help="the file of lines")
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--programs", default=",".join(PROGRAMS))
parser.add_argument("--dry", action="store_true", help="short, once, and whatever else runs")
options = parser.parse_args()
names = options.programs.split(",")
if unknown := set(names) - set(PROGRAMS):
    parser.error(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
fairlock = os.path.abspath(options.fairlock) if os.path.sep in options.fairlock else options.fairlock


def library():
    if options.library:
        return os.path.abspath(options.library)
    beside = os.path.dirname(fairlock)
    for folder in (beside, os.path.join(beside, "deps"), os.path.join(beside, "../lib")):
        file = os.path.join(folder, "libfairlock_pthread.so")
        if os.path.exists(file):
            return file
    parser.error("no libfairlock_pthread.so beside the command; say where it is with --library")


drop_in = library()
folder = os.path.abspath(options.out) + ".d"
os.makedirs(folder, exist_ok=True)
known = set()


def key(line):
    return line["what"], line.get("program"), line.get("threads"), line.get("on"), line.get("recorded_threads")


if os.path.exists(options.out):
    with open(options.out) as lines:
        known = {key(json.loads(line)) for line in lines}


def result(results):
    """Adds these lines, all at once: some of them are as good as none after a run that was cut short."""
    text = "".join(json.dumps({**line, "dry": options.dry}, ensure_ascii=False) + "\n" for line in results)
    with open(options.out, "a") as out:
        out.write(text)
    known.update(key(line) for line in results)


def run(command, environment=None, **others):
    return rounds.run(command, environment, errors=True, others=1e9 if options.dry else rounds.OTHERS, **others)


def undisturbed(measure, what):
    def once():
        if not options.dry:
            rounds.await_idle()
        return measure()

    print(what, file=sys.stderr)
    return rounds.undisturbed(once, what)


def speed(finished):
    """What a script says of its program."""
    said = re.search(r"^speed: ([0-9.]+) (\S+)/s$", finished.errors, re.MULTILINE)
    if not said:
        sys.exit(f"no speed in what it said:\n{finished.errors}")
    return float(said[1])


def share(name):
    """How much of a usual run is run."""
    return 0.2 if options.dry else 1


def recording(name, threads, number):
    """The file of this round. The first one, 0, warms up."""
    return os.path.join(folder, f"{name}-{threads}-{number}.toml")


def counted_rounds():
    return range(1, 1 + (1 if options.dry else options.rounds))


def told(name, threads, mode, share, number):
    """The command and the environment of a run in one of the modes: a lock, "counted" or "recorded"."""
    program = PROGRAMS[name]
    if mode in LOCKS:
        command = program.command(threads, share, mode)
        if program.inside and mode != "glibc":
            return command, {}
        return command, {"LD_PRELOAD": drop_in, "FAIRLOCK_LOCK": mode}
    counted = {"counted": ["--json", os.devnull], "recorded": ["--record", recording(name, threads, number)]}[mode]
    return [fairlock, "run", "-q", "--lock", "glibc", *counted, "--", *program.command(threads, share)], {}


def read(file):
    with open(file, "rb") as recorded:
        return tomllib.load(recorded)


def measure_real(name, threads):
    modes = [*LOCKS, "counted", "recorded"]

    def one_round(number):
        speeds, outputs = {}, set()
        for mode in random.Random(number).sample(modes, len(modes)):
            finished = run(*told(name, threads, mode, share(name), number))
            speeds[mode] = speed(finished)
            outputs.add(finished.output)
        if len(outputs) > 1:
            sys.exit(f"{name}: the output differs from run to run: {outputs}")
        return speeds

    what = f"{name}, {threads} threads, real"
    if not options.dry:
        undisturbed(lambda: one_round(0), what)  # Warms up.
    measured = [undisturbed(lambda: one_round(number), what) for number in counted_rounds()]
    last = recording(name, threads, counted_rounds()[-1])
    recorded = read(last)
    lines = []
    for mode in modes:
        line = {
            "what": "real", "program": name, "threads": threads, "mode": mode, "rounds": len(measured),
            "speed": rounds.interval([speeds[mode] for speeds in measured]),
            "recorded_under": PROGRAMS[name].recorded_under,
            "ratio": rounds.interval([speeds[mode] / speeds[PROGRAMS[name].recorded_under] for speeds in measured]),
            "speeds": [speeds[mode] for speeds in measured],
        }
        if mode == "recorded":
            line["file_bytes"] = os.path.getsize(last)
            line["recorded"] = recorded.get("recorded")
            line["kinds"] = [{it: kind.get(it) for it in ("name", "threads", "scales")} for kind in recorded.get("kind", [])]
        lines.append(line)
    result(lines)


def acquired(name, threads, share):
    """How often the busiest process of a counted run acquired locks, and how many operations it did."""
    with tempfile.TemporaryDirectory() as reports:
        report = os.path.join(reports, "report.jsonl")
        command = PROGRAMS[name].command(threads, share)
        finished = run([fairlock, "run", "-q", "--lock", "glibc", "--json", report, "--", *command])
        with open(report) as lines:
            facts = [json.loads(line) for line in lines]
    most = max(fact["process"]["acquired"] for fact in facts if "process" in fact)
    return most, PROGRAMS[name].operations(threads, share, speed(finished))


def measure_acquisitions(name, threads):
    def measure():
        most, operations = acquired(name, threads, share(name))
        if PROGRAMS[name].timed:
            # What it does at first is little, and runs of the same time do not do the same.
            return most / operations, 0
        less, fewer = acquired(name, threads, 0.4 * share(name))
        each = (most - less) / (operations - fewer)
        return each, less - each * fewer

    each, at_first = undisturbed(measure, f"{name}, {threads} threads, acquisitions")
    result([{
        "what": "acquisitions", "program": name, "threads": threads,
        "per_operation": round(each, 3), "before": round(at_first),
    }])


def replay(file, threads, on):
    """Acquisitions per second under each lock."""
    with tempfile.TemporaryDirectory() as out:
        seconds = read(file)["recorded"]["recorded_seconds"]
        how = ["--seconds", f"{seconds:.3f}", "--repetitions", str(REPETITIONS)]
        how += ["--on", on] if on else []
        command = [fairlock, "replay", file, "--threads", str(threads), "--lock", ",".join(LOCKS)]
        # The machine `here` is the profile in the current directory.
        finished = run([*command, *how, "--out", out], directory=folder)
        with open(os.path.join(out, "rows.jsonl")) as lines:
            rows = [json.loads(line) for line in lines]
    # Others are of the program without contention.
    rows = [row for row in rows if row.get("workload") == "replay" and row["params"]["shared"] == "recorded"]
    if not rows:
        sys.exit(f"{file}: no rows of a replay:\n{finished.output.decode(errors='replace')}{finished.errors}")
    own_name = lambda lock: "glibc" if lock.startswith("pthread") else lock
    return {own_name(row["lock"]): row["total_ops_per_s"]["median"] for row in rows}


def measure_replay(name, recorded, threads, on):
    what = f"{name}, recorded with {recorded} threads, replayed with {threads} on {on or 'threads'}"
    files = [recording(name, recorded, number) for number in counted_rounds()]
    rates = [undisturbed(lambda: replay(file, threads, on), what) for file in files]
    result([
        {
            "what": "replay", "program": name, "recorded_threads": recorded, "threads": threads, "on": on or "threads",
            "lock": lock, "acquisitions_per_s": rounds.interval([rate[lock] for rate in rates]),
        }
        for lock in LOCKS
    ])


def measure_minute(name):
    """A minute of it, recorded."""
    file = os.path.join(folder, f"{name}-minute.toml")
    command = PROGRAMS[name].command(2, 0.3 if options.dry else 12)
    finished = undisturbed(
        lambda: run([fairlock, "run", "-q", "--lock", "glibc", "--record", file, "--", *command]), f"{name}, a minute"
    )
    result([{
        "what": "minute", "program": name, "threads": 2, "seconds": finished.seconds, "file_bytes": os.path.getsize(file),
    }])


def unless_known(measure, line, *arguments):
    if key(line) not in known:
        measure(*arguments)


if not os.path.exists(os.path.join(folder, "fairlock-here.toml")):
    undisturbed(lambda: run([fairlock, "calibrate"], directory=folder), "calibrate")
for name in names:
    for threads in THREADS:
        line = {"program": name, "threads": threads}
        unless_known(measure_real, {**line, "what": "real"}, name, threads)
        unless_known(measure_acquisitions, {**line, "what": "acquisitions"}, name, threads)
    for recorded, threads in ((1, 1), (2, 2), (1, 2)):
        for on in (None, "here"):
            line = {"what": "replay", "program": name, "threads": threads, "on": on or "threads"}
            unless_known(measure_replay, {**line, "recorded_threads": recorded}, name, recorded, threads, on)
if HOTTEST in names:
    unless_known(measure_minute, {"what": "minute", "program": HOTTEST, "threads": 2}, HOTTEST)
