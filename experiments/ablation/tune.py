"""`tune:` of a spec: each level of one factor gets the same trials, which choose options for it. They are runs of a
study of their own, in the folder `tune` of the results, of seeds that the final runs do not have, and what chooses is
a figure of the samples kept for validation. experiments/README.md describes it."""

import csv
import itertools
import math
import os
from dataclasses import dataclass, replace

from ablation import command, design
from ablation.journal import read_json
from ablation.lines import check_keys, nearest, show
from reporting import sheet
from tool import BadInput

KEYS = ("factor", "options", "seeds", "by")
BY = ("validation_loss", "validation_accuracy")
FOLDER, TABLE = "tune", "tuned.csv"
MOST = 1000  # trials of a level


@dataclass(frozen=True)
class Point:
    """Of the grid."""

    options: dict  # option -> its value, as text
    words: list  # those that are options of the ranks' command,
    places: dict  # and those that stand in it: place -> text

    def of(self, cell):
        """The cell with them."""
        return replace(cell, words=[*cell.words, *self.words], places={**cell.places, **self.places})


@dataclass(frozen=True)
class Tune:
    factor: str
    options: dict  # option -> its values, as text
    points: list  # Point
    seeds: list
    by: str
    cells: list  # of the trials: (level, point's place, Cell)


# ---- reading ----

def names(reader):
    """Those that tune: gives values; read() tells what is wrong with them."""
    node = reader.node("tune")
    options = node.value.get("options") if node and isinstance(node.value, dict) else None
    return list(options.value) if options and isinstance(options.value, dict) else []


def options_of(reader, node):
    """{option: {text: Setting}}; each is set nowhere else."""
    if not isinstance(node.value, dict) or not node.value:
        raise node.bad(f"tune: options: is {node.kind}, must be a mapping {{option: [values]}}")
    owned = {name: given.node.line for name, given in reader.shared.items()}
    owned.update({name: given.node.line for levels in reader.factors.values() for level in levels.values()
                  for name, given in level.settings.items()})
    found = {}
    for name, values in node.value.items():
        command.check_name(name, values, reader.options)
        if name not in reader.options or name == "validation":
            raise values.bad(f"tune: {show(name)} is no option to choose; name options of {reader.options.of}")
        if name in owned:
            raise values.bad(f"tune sets {name}, as line {owned[name]} does; remove one of them")
        if not isinstance(values.value, list) or not values.value:
            raise values.bad(f"tune: {name}: is {values.kind}, must be a list of values to try")
        found[name] = {reader.level_name(name, value): command.setting(name, value, reader.options)
                       for value in values.value}
        if len(found[name]) < len(values.value):
            raise values.bad(f"tune: {name}: a value again; remove one")
    return found


def seeds_of(node, used):
    seeds = [command.whole(item, 0, design.LARGEST_SEED, "tune: seeds") for item in node.value] \
        if isinstance(node.value, list) and node.value else None
    if seeds is None or len(set(seeds)) < len(seeds):
        raise node.bad(f"tune: seeds: {command.text_shown(node)} must be a list of different numbers, e.g. [101, 102]")
    if both := set(seeds) & used:
        raise node.bad(f"tune: seeds: {min(both)} is a seed of the final runs, too; the trials' seeds must be others")
    return seeds


def refuse_test_set(node, cells):
    """The test samples measure the result, so they must not choose anything."""
    for cell in cells:
        given = dict(zip(cell.words, cell.words[1:])).get("--validation", "0")
        if not given.strip("0."):
            raise node.bad(f"tune: {cell.id} keeps no samples for validation, and the test samples must not choose; "
                           "give --validation in base:")


def read(reader, cells, blocks):
    """The Tune of a spec; None: it has none."""
    node = reader.node("tune")
    if node is None:
        return None
    given = check_keys(node, KEYS, "key of tune:")
    if missing := [key for key in KEYS if key not in given]:
        raise node.bad(f"tune: lacks {missing[0]}:; give {', '.join(f'{key}:' for key in KEYS)}")
    if reader.base.subcommand not in ("train", None):
        raise node.bad(f"tune: chooses by validation, and gradwire {reader.base.subcommand} has none; remove one of "
                       "them")
    factor, by = given["factor"].value, given["by"].value
    for key, names in (("factor", list(reader.factors)), ("by", BY)):
        if given[key].value not in names:
            raise given[key].bad(f"tune: {key}: {command.text_shown(given[key])} must be one of {', '.join(names)}")
    options = options_of(reader, given["options"])
    size = math.prod(map(len, options.values()))
    seeds = seeds_of(given["seeds"], {seed for _, seed in blocks})
    if size * len(seeds) > MOST:
        raise given["options"].bad(f"tune: {size * len(seeds)} trials of each level; at most {MOST}: name fewer values")
    if reader.base.subcommand:
        refuse_test_set(node, cells)
    points = [point_of(dict(zip(options, point)), options, reader.base.places)
              for point in itertools.product(*options.values())]
    return Tune(factor, {name: list(values) for name, values in options.items()}, points, seeds, by, trial_cells(
        factor, points, cells, {name: node.line for name, node in given["options"].value.items()}))


def point_of(texts, options, places):
    settings = {name: options[name][text] for name, text in texts.items()}
    return Point(texts, command.words_of(settings, places),
                 {name: given.value for name, given in settings.items() if name in places})


def trial_cells(factor, points, cells, lines):
    """[(level, place in the grid, Cell)]; lines: {option: line of the spec}. A level is tried with the baseline's
    levels of the other factors, or, where there is no such cell, in its first."""
    baseline, found = next(cell for cell in cells if cell.baseline), []
    for level in dict.fromkeys(cell.levels[factor] for cell in cells):
        wanted = {**baseline.levels, factor: level}
        own = [cell for cell in cells if cell.levels[factor] == level]
        cell = next((one for one in own if one.levels == wanted), own[0])
        for place, point in enumerate(points):
            levels = {**cell.levels, **{f"tuned {name}": text for name, text in point.options.items()}}
            found.append((level, place, replace(
                point.of(cell), id=design.cell_id(levels), levels=levels, baseline=not found,
                lines={**cell.lines, **{f"tuned {name}": line for name, line in lines.items()}},
                set_by={**cell.set_by, **{name: (f"tuned {name}", line) for name, line in lines.items()}})))
    return found


# ---- the studies ----

def trials(study):
    """The study of the trials."""
    cells = [cell for _, _, cell in study.tune.cells]
    names = {name: list(dict.fromkeys(cell.levels[name] for cell in cells)) for name in cells[0].levels}
    return replace(study, name=f"{study.name}, trials", claim=f"Trials that choose options for each "
                   f"{study.tune.factor}: not part of the comparison. {study.claim}", factors=names,
                   cells=cells, baseline=cells[0].id, design="list",
                   blocks=[(1, seed) for seed in study.tune.seeds], report={}, claims=[], doubt=None, trials=True)


def chosen(study, choices):
    """The final study: each cell has the options of its level. choices: {level: place in the grid}."""
    points = {level: study.tune.points[place] for level, place in choices.items()}
    return replace(study, cells=[points[cell.levels[study.tune.factor]].of(cell) for cell in study.cells])


def unchosen(study):
    """For what has to be known before the trials: with the first point of the grid."""
    return chosen(study, dict.fromkeys(study.factors[study.tune.factor], 0)) if study.tune else study


# ---- choosing ----

def figure_of(folder, by):
    """Of the last epoch of a trial; None: it diverged."""
    record = read_json(os.path.join(folder, "experiment.json")) or {}
    if record.get("state") == "diverged":
        return None
    try:
        with open(os.path.join(folder, "epochs.csv"), encoding="utf-8", newline="") as file:
            figure = float(list(csv.DictReader(file))[-1][by])
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise BadInput(f"{folder}: epochs.csv has no {by} of a last epoch, by which tune: chooses: remove the folder, "
                       "and --resume tries it again") from error
    return figure if math.isfinite(figure) else None


def choose(study, folders):
    """({level: place}, rows of tuned.csv). folders: {id of a trial's cell: folders of its runs}."""
    tune, rows, choices, best = study.tune, [], {}, {}
    worse = -math.inf if tune.by == "validation_accuracy" else math.inf
    for level, place, cell in tune.cells:
        figures = [figure_of(folder, tune.by) for folder in folders[cell.id]]
        mean = None if None in figures else sum(figures) / len(figures)
        score = worse if mean is None else mean
        if level not in best or (score > best[level] if worse < 0 else score < best[level]):  # of equal ones the first
            best[level], choices[level] = score, place
        rows.append({tune.factor: level, **tune.points[place].options, tune.by: mean, "trials": len(figures),
                     "diverged": figures.count(None)})
    if lost := [level for level, score in best.items() if score == worse]:
        raise BadInput(f"{study.path}: tune: each trial of {tune.factor}={lost[0]} diverged: name other values")
    for (level, place, _), row in zip(tune.cells, rows):
        row["chosen"] = int(choices[level] == place)
    return choices, rows


def write(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(sheet.text_of(list(rows[0]), rows))
