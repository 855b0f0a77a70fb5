#!/usr/bin/env python3
"""Prints what replays.py wrote as tables of Markdown, what missed first: python3 replays_table.py FILE

(a) At the threads and the lock it was recorded with, a replay makes within 15 % as many acquisitions per second as the
    program does unrecorded. Of two locks under which the program's speed differs by more than 10 %, the replay has the
    faster one right in 80 % of the pairs.
(b) From a recording with one thread, the rate with two is predicted within 20 %.
(c) Recording costs the hottest program at most 15 % of its speed, and the file of a minute has at most 50 MB.
"""

import itertools, json, sys

LOCKS = ["glibc", "rwsem", "rwlock"]
# Where the lines tell of replays: real threads, or this machine simulated.
ON = {"threads": "real threads", "here": "simulated"}

if len(sys.argv) != 2:
    sys.exit(__doc__)
with open(sys.argv[1]) as file:
    lines = [json.loads(line) for line in file]
real, each, replays, minutes = {}, {}, {}, []
for line in lines:
    program = line["program"], line["threads"]
    if line["what"] == "real":
        real[*program, line["mode"]] = line
    elif line["what"] == "acquisitions":
        each[program] = line["per_operation"]
    elif line["what"] == "replay":
        replays[*program, line["recorded_threads"], line["on"], line["lock"]] = line["acquisitions_per_s"]
    else:
        minutes.append(line)


def rate(program, threads, lock):
    """Acquisitions per second of the program itself, unrecorded."""
    line, per_operation = real.get((program, threads, lock)), each.get((program, threads))
    if line is None or per_operation is None:
        return None
    return {end: line["speed"][end] and line["speed"][end] * per_operation for end in ("median", "low", "high")}


def recorded_under(program, threads):
    return real[program, threads, "recorded"].get("recorded_under", "glibc")


def own_rate(program, threads):
    return rate(program, threads, recorded_under(program, threads))


def number(value):
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def shown(interval):
    if interval is None:
        return "–"
    ends = "" if interval["low"] is None else f" [{number(interval['low'])}, {number(interval['high'])}]"
    return number(interval["median"]) + ends


def percent(ratio):
    return f"{(ratio - 1) * 100:+.1f} %"


def verdict(is_met):
    return "met" if is_met else "**missed**"


def table(title, head, rows):
    """Rows are pairs: what to sort by, the worst first, and the cells."""
    print(f"### {title}\n")
    if not rows:
        return print("Nothing measured.\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for _, cells in sorted(rows, key=lambda row: -row[0]):
        print("| " + " | ".join(map(str, cells)) + " |")
    print()


def compared(recorded, threads, bound):
    """Rates of replays from these recordings beside those of the programs; the bound is for the lock it was recorded with."""
    rows = []
    for (program, at, by, on, lock), simulated in replays.items():
        own = rate(program, at, lock)
        if at != threads or by != recorded or own is None:
            continue
        ratio = simulated["median"] / own["median"]
        error = abs(ratio - 1)
        is_bound = lock == recorded_under(program, at)
        word = verdict(error <= bound) if is_bound else ""
        rank = error + (10 if error > bound and is_bound else 0)
        rows.append((rank, [program, at, lock, ON[on], shown(own), shown(simulated), percent(ratio), word]))
    return rows


def winners():
    rows, right, of = [], dict.fromkeys(ON, 0), dict.fromkeys(ON, 0)
    programs = sorted({(program, threads) for program, threads, _ in real})
    for (program, threads), (one, other) in itertools.product(programs, itertools.combinations(LOCKS, 2)):
        both = [real.get((program, threads, lock)) for lock in (one, other)]
        if None in both:
            continue
        by_round = sorted(first / second for first, second in zip(both[0]["speeds"], both[1]["speeds"]))
        own = by_round[len(by_round) // 2]
        if 1 / 1.1 <= own <= 1.1:
            continue
        cells, wrong = [program, threads, one, other, percent(own)], 0
        for on in ON:
            rates = [replays.get((program, threads, threads, on, lock)) for lock in (one, other)]
            if None in rates:
                cells.append("–")
                continue
            ratio = rates[0]["median"] / rates[1]["median"]
            is_right = (ratio > 1) == (own > 1)
            of[on] += 1
            right[on] += is_right
            wrong += not is_right
            cells.append(percent(ratio) + ("" if is_right else " **wrong**"))
        rows.append((wrong, cells))
    return rows, right, of


def costs():
    hottest = max(
        ((own_rate(program, threads) or {"median": 0})["median"] / threads, program, threads) for program, threads, _ in real
    )[1:]
    rows = []
    for (program, threads, mode), line in real.items():
        if mode not in ("counted", "recorded"):
            continue
        ratio = line["ratio"]
        is_bound = mode == "recorded" and (program, threads) == hottest
        ends = "" if ratio["low"] is None else f" [{percent(ratio['low'])}, {percent(ratio['high'])}]"
        size = f"{line['file_bytes'] / 1e6:.1f}" if "file_bytes" in line else "–"
        word = verdict(ratio["median"] >= 0.85) if is_bound else ""
        rank = 1 - ratio["median"] + (10 if "missed" in word else 0)
        own = own_rate(program, threads)
        hot = number(own["median"]) if own else "–"
        rows.append((rank, [program, threads, mode, hot, percent(ratio["median"]) + ends, size, word]))
    for line in minutes:
        megabytes = line["file_bytes"] / 1e6
        cells = [line["program"], line["threads"], f"{line['seconds']:.0f} s recorded", "–", "–", f"{megabytes:.1f}"]
        rows.append((10 * (megabytes > 50), [*cells, verdict(megabytes <= 50)]))
    return rows


head = ["program", "threads", "lock", "replayed on", "the program, acquisitions/s", "the replay", "differs by", ""]
table("(a) The same threads", head, compared(1, 1, 0.15) + compared(2, 2, 0.15))
rows, right, of = winners()
table(
    "(a) The faster lock, where speeds differ by more than 10 %",
    ["program", "threads", "lock", "than", "the program", *ON.values()], rows,
)
for on, title in ON.items():
    if of[on]:
        print(f"{title}: {right[on]} of {of[on]} right, {verdict(right[on] >= 0.8 * of[on])}\n")
table("(b) From one thread to two", head, compared(1, 2, 0.2))
table(
    "(c) What recording costs",
    ["program", "threads", "", "acquisitions/s", "speed, to that of neither", "file, MB", ""], costs() if real else [],
)
print("### What recordings say of their runs\n")
print("| program | threads | acquisitions/s | the program | in locks | computing | away | without a CPU | kinds |")
print("|---|---|---|---|---|---|---|---|---|")
for (program, threads, mode), line in real.items():
    if mode == "recorded" and line.get("recorded"):
        recorded, own = line["recorded"], own_rate(program, threads)
        shares = [f"{recorded.get(it, 0) * 100:.1f} %" for it in ("in_lock", "computing", "away", "without_cpu")]
        kinds = "; ".join(f"{it['threads']} {it['name']}{' (scales)' if it['scales'] else ''}" for it in line["kinds"])
        cells = [program, threads, number(recorded["acquisitions_per_s"]), shown(own), *shares, kinds]
        print("| " + " | ".join(map(str, cells)) + " |")
