"""Writes a study as a job array of Slurm: one task per run, in the planned order."""

import itertools
import os
import re
import shlex

from ablation.launch import threads_of
from processes import GRACE_S
from tool import check_names

MOST_TASKS = 1000  # Slurm's MaxArraySize is 1001 unless the site says otherwise
START_S = 60  # for starting and recording a run

SCRIPT = """\
#!/bin/bash
# {name}: {runs} runs. Submit it by `sbatch {file}`, with --partition, --account and the like as
# the site requires; `{resume} --dry-run` shows the progress.
# Tasks begin in the planned order, {limit} at a time; one that is cancelled with `scancel --full`
# records its run as interrupted.
#SBATCH --job-name={job}
#SBATCH --array={array}%{limit}
#SBATCH --ntasks={tasks}
#SBATCH --cpus-per-task={threads}
#SBATCH --exclusive
{time}#SBATCH --output={log}
{site}first=$((SLURM_ARRAY_TASK_ID * {chunk}))
exec {resume} --only-run "$first-$((first + {last}))"
"""


def ranges(numbers):
    """[0, 1, 2, 5] as 0-2,5."""
    groups = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    parts = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{part[0]}-{part[-1]}" if part[1:] else str(part[0]) for part in parts)


def clock(seconds):
    minutes = -(-int(seconds) // 60)  # Slurm counts whole ones
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def shape(cells):
    """(tasks, cpus per task) for any one of the cells. If their threads differ, a task is one core,
    since the most ranks times the most threads would exceed every cell's needs."""
    threads = {threads_of(cell) for cell in cells}
    if len(threads) == 1:
        return max(cell.processes for cell in cells), threads.pop()
    return max(cell.processes * threads_of(cell) for cell in cells), 1


def render(study, left, total, words, file, out, limit, site=""):
    """The script for the runs `left`, [(index in the planned order, Planned)], of `total`; `words`:
    the command of a task; `site`: lines before it. No comment ends before its line does: check_names()
    sees to that."""
    check_names([*words, file, out])
    file = os.path.join(".", file) if file.startswith("-") else file
    out = out.replace("%", "%%")  # Slurm has patterns in the name of a log
    chunk = -(-total // MOST_TASKS)
    name = re.sub(r"[^\w.+-]", "_", study.name)
    tasks, threads = shape([planned.cell for _, planned in left])
    longest = chunk * (study.retries + 1) * ((study.timeout_s or 0) + GRACE_S + START_S)
    return SCRIPT.format(
        name=name, runs=len(left), file=shlex.quote(file), resume=shlex.join(words),
        job=f"gradwire-{name}", array=ranges(sorted({i // chunk for i, _ in left})), limit=limit,
        tasks=tasks, threads=threads, chunk=chunk, last=chunk - 1,
        log=shlex.quote(os.path.join(out, "slurm-%A-%a.txt")), site=site and site.rstrip("\n") + "\n",
        time=f"#SBATCH --time={clock(longest)}\n" if study.timeout_s else "")
