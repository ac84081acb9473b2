"""Writes a study as a job array of Slurm: tasks in the planned order, each a run of its own."""

import os
import shlex

from ablation.launch import GRACE_S, threads_of
from ablation.journal import Refused

MOST_TASKS = 1000  # Slurm's MaxArraySize is 1001 unless the site says otherwise
START_S = 60  # for what a run takes beside its timeout: starting, recording

SCRIPT = """\
#!/bin/bash
# {name}: {runs} runs. Submit it by `sbatch {file}`, with --partition, --account and the like as
# the site wants; `{resume} --dry-run` says how far it is.
# Tasks begin in the planned order, {limit} at a time; one that is cancelled with `scancel --full`
# records its run as interrupted.
#SBATCH --job-name={job}
#SBATCH --array={array}%{limit}
#SBATCH --ntasks={ranks}
#SBATCH --cpus-per-task={threads}
#SBATCH --exclusive
{time}#SBATCH --output={log}
first=$((SLURM_ARRAY_TASK_ID * {chunk}))
exec {resume} --only-run "$first-$((first + {last}))"
"""


def ranges(numbers):
    """[0, 1, 2, 5] as 0-2,5."""
    parts = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def clock(seconds):
    minutes = -(-int(seconds) // 60)  # Slurm counts whole ones
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def render(study, left, total, words, file, out, limit):
    """The script for the runs `left`, [(index in the planned order, Planned)], of `total`; `words`
    is the command that a task calls."""
    if not left:
        raise Refused(f"{out}: nothing is left to run")
    chunk = -(-total // MOST_TASKS)
    cells = [planned.cell for _, planned in left]
    longest = chunk * (study.retries + 1) * ((study.timeout_s or 0) + GRACE_S + START_S)
    return SCRIPT.format(
        name=study.name, runs=len(left), file=shlex.quote(file), resume=shlex.join(words),
        job=f"gradwire-{study.name}", array=ranges(sorted({i // chunk for i, _ in left})),
        limit=limit, ranks=max(cell.ranks for cell in cells), chunk=chunk, last=chunk - 1,
        threads=max(map(threads_of, cells)), log=os.path.join(out, "slurm-%A-%a.txt"),
        time=f"#SBATCH --time={clock(longest)}\n" if study.timeout_s else "")
