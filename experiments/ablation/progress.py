"""What the runner says: how far a study is, and how long the rest may take.

A study does not end because nobody listens: where its output cannot be written (a pipe whose reader
has seen enough, a full disk), it goes on in silence, and the exit status tells the rest."""

import os
import shutil
import sys


def open_streams():
    """Before anything is said: a stream that the caller has closed is no trap for a file that is
    opened later, and a terminal of few letters shows the others as escapes."""
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
        os.dup2(nowhere, stream.fileno())  # what is buffered goes there, too
        os.close(nowhere)


def warn(text):
    say(f"experiments/run: {text}", stream=sys.stderr)


def passing(text):
    """On a terminal alone, and written over: what takes a while."""
    if sys.stdout.isatty():
        say("\r\033[K" + text, end="")


def duration(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Progress:
    """One line, rewritten on a terminal; elsewhere one line a run."""

    def __init__(self, total, jobs, stream=None):
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.total, self.jobs = total, jobs
        self.states = {}  # folder -> state of what has ended
        self.seconds = {}  # cell -> of its runs that have a result

    def count(self, *states):
        return sum(state in states for state in self.states.values())

    def ended(self, planned, state, seconds):
        self.states[planned.folder] = state
        if seconds is not None and state in ("done", "diverged"):
            self.seconds.setdefault(planned.cell.id, []).append(seconds)

    def expected(self, left):
        """Seconds for what is left; a cell that has not run yet counts as the others' mean. None:
        nothing is known."""
        if not self.seconds:
            return None
        means = {cell: sum(known) / len(known) for cell, known in self.seconds.items()}
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

    def show(self, left, event=""):
        text = self.line(left) + (f": {event}" if event else "")
        if self.live:
            width = max(shutil.get_terminal_size().columns - 1, 20)
            say("\r\033[K" + text[:width], end="", stream=self.stream)
        else:
            say(text, stream=self.stream)

    def note(self, text):
        """Stays, above the line."""
        self.clear()
        say(text, stream=self.stream)

    def clear(self):
        if self.live:
            say("\r\033[K", end="", stream=self.stream)

    def summary(self, out):
        parts = [f"{self.count(state)} {state}" for state in ("done", "diverged", "failed")
                 if self.count(state)]
        left = self.total - len(self.states)
        parts += [f"{left} left"] * bool(left)
        return f"{self.total} run{'' if self.total == 1 else 's'}: {', '.join(parts)}; in {out}"
