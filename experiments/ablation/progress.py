"""How far a study is, and how long the rest may take."""

import shutil
import sys


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
            self.stream.write("\r\033[K" + text[:width])
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def note(self, text):
        """Stays, above the line."""
        self.clear()
        self.stream.write(text + "\n")
        self.stream.flush()

    def clear(self):
        if self.live:
            self.stream.write("\r\033[K")
            self.stream.flush()


def summary(out, total, progress, left):
    parts = [f"{progress.count(state)} {state}" for state in ("done", "diverged", "failed")
             if progress.count(state)]
    parts += [f"{left} left"] * bool(left)
    return f"{total} runs: {', '.join(parts) or 'none'}; in {out}"
