"""Before a run: whether other processes leave it the cores that it needs. `gradwire doctor --busy` measures
that; docs/measurement.md has its threshold. Of runs that start elsewhere (srun) only their own run.json
tells it."""

import argparse
import json
import re
import subprocess
import time

import processes
from ablation.launch import threads_of
from ablation.progress import duration, passing, warn

WAIT_S, MOST_THREADS = 600, 4096
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
LOOK_S = 60  # one that takes longer tells nothing
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1, 15


def policy(text):
    """"go", "stop", or the seconds to wait at most: argparse's type."""
    found = re.fullmatch(r"wait(?::(\d{1,6}(?:\.\d{1,3})?)(s|m|min|h))?", text, re.ASCII)
    if text not in ("go", "stop") and not found:
        raise argparse.ArgumentTypeError(f"'{text}': must be go, stop, wait or wait:TIME, e.g. wait:30min")
    return text if not found else float(found[1]) * UNITS[found[2]] if found[1] else WAIT_S


class Busy(Exception):
    """The machine is busy, and the user wants to stop then."""


def look(program, threads, mask):
    """What `gradwire doctor --busy` says for so many threads; {}: nothing."""
    process = processes.start([program, "doctor", "--busy", "--threads", str(min(threads, MOST_THREADS))], mask,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        found = json.loads(process.communicate(timeout=LOOK_S)[0])
        return found if isinstance(found, dict) else {}
    except (subprocess.TimeoutExpired, ValueError):
        return {}
    finally:
        processes.end([process])


class Gate:
    """Lets a run begin, by the policy. `pause(seconds)` is how the runner waits."""

    def __init__(self, when, launcher, pause):
        self.when, self.launcher, self.pause = when, launcher, pause
        self.looks = launcher.kind != "srun"
        self.left_s = when if isinstance(when, (int, float)) else 0  # of all waiting

    def admit(self, cell, mask):
        """Before a run of this cell, while none is at work; Busy: it may not begin."""
        if cell.simulated and not cell.measured:  # by a clock of its own
            return
        until, pause = None, FIRST_PAUSE_S
        while self.looks and (found := look(self.launcher.program, cell.processes * threads_of(cell), mask)).get("warned"):
            words = found.get("text")
            now = time.monotonic()
            if self.when == "stop":
                raise Busy(f"the machine is busy: {words}")
            if until is None and self.left_s > 0:
                until = now + self.left_s
                warn(f"the machine is busy: {words}: waiting for at most {duration(self.left_s)}")
            if until is None or now >= until:
                warn(f"the machine is busy: {words}: its times are not to be trusted")
                self.looks = False  # it was said; run.json has the figures of each run
                return
            passing(f"waiting: {words}")
            self.pause(min(pause, until - now))
            pause = min(2 * pause, LONGEST_PAUSE_S)
            self.left_s = max(until - time.monotonic(), 0)
        self.looks &= self.when != "go"  # else it looks before each run
