"""How a run ended: one set of words and one description for the runner, the report, `gradwire table`, show,
compare and export. docs/analysis.md, "How a run ended", has the words. Python's own library only."""

import re

from .shape import CUT_SHORT
from .base import plain

DONE, DIVERGED, FAILED, INTERRUPTED = "done", "diverged", "failed", "interrupted"
UNFINISHED, NOT_RUN, LEFT_OUT = "unfinished", "not run", "left out"
WORDS = (DONE, DIVERGED, FAILED, INTERRUPTED, UNFINISHED, NOT_RUN, LEFT_OUT)
LOST = (DIVERGED, FAILED, INTERRUPTED, UNFINISHED)  # that began, and have no figures
WITHOUT_RECORD = "still running, or killed with its runner"
WITHOUT_RESULT = "no run.json: still running, or ended before it wrote one"

LONGEST = 300  # letters of a cause
# The lines of Hydra and UCX around a rank's own when one dies.
BANNER = re.compile(r"^(=|YOUR APPLICATION TERMINATED|This typically refers to a problem|"
                    r"Please see the FAQ page|\[(mpiexec|proxy).*\(\S+\.c:\d+\)|"
                    r" *\d+ +/\S+\(\S*\) \[0x).*$", re.MULTILINE)
# Of the first rank that died: srun then ends the others, and names them, too.
SRUN_DIED = re.compile(r"^srun: error: \S+: tasks? [\d,-]+: (?!Exited)([A-Z][^(\n]*[^ (\n])", re.MULTILINE)
OWN = re.compile(r"(?:\[\d+\] )?gradwire: (?!rank \d+:   )")  # indented are details of the line before
STOPPED = re.compile(r"gradwire: stopped by SIG")  # told to end: another reason explains more
LAUNCHER = re.compile(r"(mpiexec|mpirun|prterun|srun|slurmstepd|hydra)\b")
TRACEBACK = "Traceback (most recent call last):"


def of_record(record):
    """Of an experiment.json that was checked, None: there is none."""
    if record is None:
        return NOT_RUN
    return UNFINISHED if record["state"] == "running" else record["state"]


def of_run(info):
    """Of a run.json: a run that a signal ended wrote one, too."""
    results = info.get("results")
    return INTERRUPTED if isinstance(results, dict) and results.get("stopped_by") in CUT_SHORT else DONE


def counted(counts):
    """`5 done, 2 diverged, 2 failed` of {word: number}."""
    return ", ".join(f"{counts.get(word, 0)} {word}" for word in WORDS if counts.get(word) or word == DONE)


def cause_of(text):
    """The line of a run's output that says why it failed: gradwire's first, else the error that ended a
    Python program, else the last that is none of the launcher's; "" if there is none."""
    lines = [line for line in BANNER.sub("", text).splitlines() if line.strip()]
    own = [line for line in map(str.strip, lines) if OWN.match(line)]
    own = [line for line in own if not STOPPED.search(line)] or own
    if not own and TRACEBACK in map(str.strip, lines):
        at = list(map(str.strip, lines)).index(TRACEBACK)
        own = [line for line in lines[at + 1:] if not line[0].isspace()]
    own += [line for line in lines if SRUN_DIED.match(line)]
    others = [line for line in lines if not LAUNCHER.match(line.strip())]
    return plain((own[:1] or others[-1:] or lines[-1:] or [""])[0].strip())[:LONGEST]


def described(record):
    """The last attempt of an experiment.json that counts, in one line: how it ended, and the cause."""
    if record.get("state") == "running":
        return WITHOUT_RECORD
    tried = [one for one in record["attempts"] if not one.get("interrupted")]
    if not record["attempts"]:
        return "never started"
    last = (tried or record["attempts"])[-1]
    how = ("timed out" if last["timed_out"] else f"signal {last['signal']}" if last["signal"]
           else "not started" if last["status"] is None and not last.get("interrupted")
           else "ended with its runner" if last["status"] is None
           else f"exit status {last['status']:g}")
    said = last.get("cause") or cause_of(last["message"])
    return plain(how + (f", {len(tried)} attempts" if len(tried) > 1 else "") + (f": {said}" if said else ""))
