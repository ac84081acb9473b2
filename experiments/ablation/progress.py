"""The runner's output: the progress of a study and the time that remains.

If the output cannot be written (a closed pipe, a full disk), the study continues in silence; the
exit status still tells the result."""

import contextlib
import os
import shutil
import sys

from reporting.ends import counted


def open_streams():
    """Call this before any output: replaces closed streams, so that no file gets their descriptors,
    and shows characters that the terminal lacks as escapes."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        else:
            getattr(sys, name).reconfigure(errors="backslashreplace")


def say(text, end="\n", stream=None):
    stream = stream or sys.stdout
    try:
        stream.write(text + end)
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # for the buffered text, too
        os.close(nowhere)


def warn(text):
    say(f"experiments/run: {text}", stream=sys.stderr)


def passing(text):
    """Shows what takes a while, on a terminal only; the next line replaces it."""
    if sys.stdout.isatty():
        say("\r\033[K" + text, end="")


def duration(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def size_of(folder):
    """The bytes of all files in it, in MB."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it has just gone
                total += os.lstat(os.path.join(top, name)).st_size
    return f"{total / 1e6:.1f} MB"


class Progress:
    """One line that is rewritten on a terminal; elsewhere one line per run."""

    def __init__(self, total, jobs, stream=None):
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.total, self.jobs = total, jobs
        self.states = {}  # folder -> state, of runs that have ended
        self.seconds = {}  # cell -> seconds of its runs that have a result
        self.guesses = {}  # cell -> seconds of a run, before one has ended

    def count(self, *states):
        return sum(state in states for state in self.states.values())

    def ended(self, planned, state, seconds):
        self.states[planned.folder] = state
        if seconds is not None and state in ("done", "diverged"):
            self.seconds.setdefault(planned.cell.id, []).append(seconds)

    def expected(self, left):
        """Seconds for the remaining runs; a cell without a run or a guess counts as the mean of the
        others. None: unknown."""
        means = {**self.guesses, **{cell: sum(known) / len(known)
                                    for cell, known in self.seconds.items()}}
        if not means:
            return None
        typical = sum(means.values()) / len(means)
        total = sum(means.get(planned.cell.id, typical) for planned in left)
        return total / min(self.jobs, len(left)) if left else None

    def line(self, left):
        expected = self.expected(left)
        text = (f"{len(self.states)}/{self.total}: {self.count('done')} done, "
                + f"{self.count('diverged')} diverged, " * bool(self.count("diverged"))
                + f"{self.count('failed')} failed, {len(left)} left")
        if expected is not None:
            text += f", about {duration(expected)} to go"
        return text

    def announce(self, left):
        """Before the first run."""
        expected, cells = self.expected(left), len({planned.cell.id for planned in left})
        by = ("the runs that have ended" if self.seconds else
              f"a few steps of {len(self.guesses)} of them")
        self.note(f"{len(left)} of {self.total} runs to do, of {cells} cell{'s' * (cells != 1)}: "
                  + ("no estimate of the time before the first has ended" if expected is None else
                     f"about {duration(expected)}, by {by}"))

    def show(self, left, event="", running=()):
        text = self.line(left)
        text += f": {event}" if event and not self.live else ""
        if running:
            more = len(running) - 1
            text += f"; running {running[0]}" + (f" and {more} more" if more else "")
        if self.live:
            width = max(shutil.get_terminal_size().columns - 1, 20)
            say("\r\033[K" + text[:width], end="", stream=self.stream)
        else:
            say(text, stream=self.stream)

    def note(self, text):
        """Prints a line that stays."""
        self.clear()
        say(text, stream=self.stream)

    def clear(self):
        if self.live:
            say("\r\033[K", end="", stream=self.stream)

    def summary(self, out, counts):
        """`counts`: {how a run ended: number}."""
        left = self.total - len(self.states)
        return (f"{self.total} run{'' if self.total == 1 else 's'}: {counted(counts)}"
                + f"; {left} left" * bool(left) + f"; in {out}, {size_of(out)}")
