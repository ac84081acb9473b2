"""Refuses cells that gradwire would refuse, before anything runs: `gradwire train --check` checks
each distinct command on its number of ranks. Comparing the refused cells with the others tells
which line of the spec is wrong. Of a program that is not gradwire's it is only known whether it is
there."""

import itertools
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from ablation.lines import show
from tool import BadInput

TIMEOUT_S = 600
MOST_TOGETHER = 3  # levels that may be wrong together, before the whole cell is named


def cells(study, chosen, start, directory=None, tell=lambda text: None):
    """BadInput for the first of the chosen cells, in the study's order, that cannot run.
    start(ranks): the words that start gradwire on so many ranks; directory: the base of relative
    paths; tell(text): reports progress."""
    distinct, wanted = {}, {cell.id for cell in chosen}
    chosen = [cell for cell in study.cells if cell.id in wanted]
    for cell in {cell.base: cell for cell in chosen if not cell.base.subcommand}.values():
        refuse_absent(study, cell, start(1)[-1], directory)
    chosen = [cell for cell in chosen if cell.base.subcommand]
    if not chosen:
        return
    for cell in chosen:
        distinct.setdefault(question(cell), cell)
    wide = max((cell.processes for cell in distinct.values()), default=1)
    pool = ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // wide))
    verdicts = {}
    tell(f"checking 0/{len(distinct)}")
    try:
        for command, verdict in zip(distinct, pool.map(
                lambda cell: judge(cell, start, directory), distinct.values())):
            verdicts[command] = verdict
            tell(f"checking {len(verdicts)}/{len(distinct)}")
    finally:
        pool.shutdown(cancel_futures=True)
        tell("")
    judged = [(cell, verdicts[question(cell)]) for cell in chosen]
    refused = [(cell, message) for cell, message in judged if message]
    if refused:
        passing = [cell for cell, message in judged if not message]
        raise explain(study, *refused[0], passing, len(refused) - 1)


def question(cell):
    """What two cells have in common that are checked by one command."""
    return (cell.base, cell.ranks, *cell.words, *cell.places.items())


def refuse_absent(study, cell, gradwire, directory):
    """BadInput if the cell's program is not to be found."""
    words = cell.base.words
    at = words.index("{launcher}") + 1
    named = cell.base.fill(cell, {"gradwire": gradwire, "build": os.path.dirname(gradwire), "out": "run",
                                  "launcher": [], "options": [], "seed": "1", "ranks": "1"})[at - 1]
    if not shutil.which(os.path.join(directory or "", named) if os.sep in named else named):
        raise BadInput(f"{study.path}:{cell.base.line}: command: {show(named)}: no such program, or it cannot be "
                       "executed; install it, or give its path")


def judge(cell, start, directory):
    """Why gradwire would refuse the cell; None: it would run. Some options require --out; a check
    writes nothing."""
    base = cell.base.of(cell)
    head = [*start(0 if cell.simulated else cell.ranks), base.subcommand, *base.arguments(cell)]
    words = [*head, "--check", "--quiet", *cell.words, "--out", "run"]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=TIMEOUT_S, check=False, cwd=directory)
    except subprocess.TimeoutExpired:
        return f"--check did not end within {TIMEOUT_S} s"
    except OSError as error:
        return f"{words[0]}: cannot be run: {error.strerror}"
    if done.returncode == 0:
        return None
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    own = [line for line in said if line.startswith("gradwire: ")]
    line = (own or said[-1:] or [f"--check ended with status {done.returncode}"])[0]
    return re.sub(rf"^gradwire: ({base.subcommand}: )?", "", line)


def mentioned(cell, message):
    """Settings that the message names: by option, else by the first word of the value."""
    values = dict(zip(cell.words, cell.words[1:]))
    by_option = [name for name in cell.set_by
                 if re.search(rf"--{re.escape(name)}\b|\b{re.escape(name)}=", message)]
    heads = {name: re.split("[:;+=]", values.get(f"--{name}", ""))[0] for name in cell.set_by}
    by_value = [name for name, head in heads.items() if name not in by_option
                and len(head) > 1 and re.search(rf"(?<!\w){re.escape(head)}(?!\w)", message)]
    return by_option + by_value


def culprits(cell, passing, told):
    """The fewest factors whose levels no passing cell has together, preferably those that the
    message names. Empty if no cell passes: then the shared settings may be wrong."""
    for size in range(MOST_TOGETHER + 1):
        fits = [names for names in itertools.combinations(cell.levels, size)
                if not any(all(other.levels[n] == cell.levels[n] for n in names)
                           for other in passing)]
        if fits:
            break
    else:
        return tuple(cell.levels)
    if fits == [()]:
        owners = [cell.set_by[name][0] for name in told[:1]]
        return tuple(owner for owner in owners if owner)
    owners = {cell.set_by[name][0] for name in told}
    return max(fits, key=lambda names: len(owners.intersection(names)))


def explain(study, cell, message, passing, others):
    told = mentioned(cell, message)
    names = culprits(cell, passing, told)
    lines = [line for owner, line in (cell.set_by[name] for name in told)
             if owner in (names or (None,))] + [cell.lines[name] for name in names]
    line = lines[0] if lines else cell.line
    what, advice = "every cell", ""
    if len(names) == 1:
        what = f"level {show(cell.levels[names[0]])} of {show(names[0])}"
    elif names:
        what = " with ".join(f"{name}={cell.levels[name]}" for name in names)
        rule = ", ".join(f"{quoted(name)}: {quoted(cell.levels[name])}" for name in names)
        advice = f"; leave it out by skip: [{{{rule}}}]"
        if study.design == "list":
            line, advice = cell.line, "; take the cell out"
    more = f" ({others} more cell{'s are' if others > 1 else ' is'} refused)" if others else ""
    return BadInput(f"{study.path}:{line}: {what}: {message}{advice}{more}")


def quoted(text):
    """As YAML has it in a flow mapping."""
    return text if re.fullmatch(r"[\w.-]+", text) else "'" + text.replace("'", "''") + "'"
