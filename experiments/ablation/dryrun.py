"""--dry-run: the runs in their order, each with its command."""

import os
import shlex

from ablation.command import LINK


def environment_words(environment):
    """env(1) with its arguments, so that a line can be copied and run."""
    unset = [word for name, value in environment.items() if value is None
             for word in ("-u", name)]
    given = [f"{name}={value}" for name, value in environment.items() if value is not None]
    return ["env", *unset, *given] if unset or given else []


def counted(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def place(cell):
    where = counted(cell.ranks, "simulated rank" if cell.simulated else "rank")
    if cell.testbed:
        bed = cell.testbed
        where += f" on {bed['hosts']} hosts at {bed['rate']}, {bed['per_host']} each in turn"
        where += "".join(f", {name} {bed[name]}" for name in LINK if name in bed)
    return where


def text(study, runs, out, launcher):
    """The output. runs: [(place in the plan, Planned)]."""
    lines = [f"{study.path}{' (short)' if study.short else ''}: {study.claim}"]
    for name, levels in study.factors.items():
        lines.append(f"  {name}: {' | '.join(levels)}")
    lines.append(f"  baseline: {study.baseline}")
    width = len(str(max((i for i, _ in runs), default=0)))
    for i, planned in runs:
        folder = os.path.join(out, planned.folder)
        words = (environment_words(launcher.environment(planned, folder))
                 + launcher.command(planned, folder))
        lines.append(f"{i:>{width}}  {planned.folder}  {place(planned.cell)}  {shlex.join(words)}")
    blocks, total = len(study.blocks), len(study.cells) * len(study.blocks)
    lines.append(f"{counted(len(study.cells), 'cell')} ({study.design}) x "
                 f"{counted(blocks, 'block')} = {counted(total, 'run')}; listed: {len(runs)}; "
                 "nothing was run or written")
    return "\n".join(lines)
