"""What measure.py and replays.py have in common: runs count only on a machine that does nothing else; medians.

Where other programs keep the CPUs busy, threads seldom run at the same time, and locks make no difference. So a round
waits until the machine is idle, and does not count if others used the CPUs meanwhile.
"""

import math, os, statistics, subprocess, sys, time

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


class Disturbed(Exception):
    """Others used the CPUs meanwhile."""


class Finished:
    """What a run took, and what it printed."""

    def __init__(self, seconds, used, output, errors):
        self.seconds, self.output, self.errors = seconds, output, errors
        self.cpu_seconds, self.sleeps = used.ru_utime + used.ru_stime, used.ru_nvcsw


def run(command, environment=None, errors=False, others=OTHERS, directory=None):
    """Runs a command to its end. `errors`: its standard error is kept, too. Raises Disturbed if others used more CPUs."""
    began, busy = time.monotonic(), busy_seconds()
    kept = os.memfd_create("errors") if errors else subprocess.DEVNULL
    child = subprocess.Popen(
        command, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, stderr=kept, cwd=directory
    )
    output = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    said = b""
    if errors:
        with os.fdopen(kept, "rb") as file:
            file.seek(0)
            said = file.read()
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {child.returncode}\n{said.decode(errors='replace')}")
    finished = Finished(time.monotonic() - began, used, output, said.decode(errors="replace"))
    if (busy_seconds() - busy - finished.cpu_seconds) / finished.seconds > others:
        raise Disturbed
    return finished


def undisturbed(measure, what, times=8):
    """What `measure` returns once nobody disturbs it."""
    for _ in range(times):
        try:
            return measure()
        except Disturbed:
            print(f"{what}: disturbed, once more", file=sys.stderr)
    sys.exit(f"{what}: others use the CPUs")
