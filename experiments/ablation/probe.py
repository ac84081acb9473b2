"""How long a study will take, before its first run: some of its cells train for a few steps. How a
program that is not gradwire's would do only a few is not known."""

import contextlib
import dataclasses
import os
import shutil

from ablation.journal import read_json

FOLDER = ".probe"  # in the results folder, while a probe runs
STEPS, LIMIT_S = 20, 5.0
TIMEOUT_S = 60
FEW = 8  # of so many runs one cell is probed, of more the first and the last


def cells(left, order):
    """Runs of the cells to probe, of those that are left and whose command is gradwire's; `order`: the study's cells. A
    spec often begins with one end of a factor and ends with the other."""
    of_cell = {planned.cell.id: planned for planned in left}
    distinct = [of_cell[cell.id] for cell in order if cell.id in of_cell and cell.base.subcommand]
    return distinct[:1] + (distinct[1:][-1:] if len(left) > FEW else [])


def shortened(words, trains):
    """A run's options, but for at most STEPS steps and, if it trains, LIMIT_S seconds."""
    given = dict(zip(words, words[1:]))
    steps = min(STEPS, int(given.get("--steps", STEPS)))
    kept = [word for at, word in enumerate(words)
            if not {word, words[at - 1] if at else ""} & {"--steps", "--time-limit"}]
    return [*kept, "--steps", str(steps), *(["--time-limit", f"{LIMIT_S:g}s"] if trains else [])]


def planned_steps(cell, run):
    """How many steps a whole run of the cell takes, and one epoch."""
    options, machine = run["options"], run["machine"]
    own = options["local-batch"]
    batch = own * machine["workers"] if own else options["batch"]
    epoch = -(-run["data"]["train"] // batch)
    given = int(dict(zip(cell.words, cell.words[1:])).get("--steps", options["epochs"] * epoch))
    return min(options["epochs"] * epoch, given), epoch


def whole(cell, run, wall_s):
    """Seconds of a whole run, by run.json of a short one that took wall_s: its start, its steps, and
    an evaluation after each epoch and as often as --eval-every says."""
    results, every = run["results"], run["options"].get("eval-every")
    step_s = results["summary"]["wall_s"] or results["train_s"] / results["steps"]  # a short run may lack a period
    if not run.get("data"):  # no epochs
        steps = int(dict(zip(cell.words, cell.words[1:]))["--steps"])
        return max(wall_s - results["elapsed_s"], 0) + steps * step_s
    steps, epoch = planned_steps(cell, run)
    tests = -(-steps // epoch) + (steps // every if every else 0)
    return (max(wall_s - results["elapsed_s"], 0) + steps * step_s
            + tests * max(results["elapsed_s"] - results["train_s"], 0))


def seconds(planned, out, launcher, run):
    """Seconds that a whole run of the cell will take; None: it cannot be told. run(words, cell,
    folder): runs the command, and returns the seconds it took, None if it failed."""
    folder = os.path.join(out, FOLDER)
    simulated = planned.cell.simulated  # in time of its own: a whole run tells
    short = planned.cell if simulated else dataclasses.replace(
        planned.cell, words=shortened(planned.cell.words, planned.cell.base.subcommand == "train"))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    try:
        took = run(launcher.command(dataclasses.replace(planned, cell=short), folder), short, folder)
        with contextlib.suppress(KeyError, TypeError, ValueError, ZeroDivisionError):
            return took if took is None or simulated else whole(
                planned.cell, read_json(os.path.join(folder, "run.json")), took)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None
