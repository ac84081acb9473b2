"""Levels of factors: what they call a cell, those that are numbers, groups of cells that differ in some factors, and
the cell that is named by some. Python's own library only."""

import difflib
import re
from collections import Counter, namedtuple

from .base import BadInput

# Suffixes of the program's options and the testbed's rates.
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30,
         "bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "ns": 1e-9, "us": 1e-6, "ms": 1e-3,
         "s": 1, "%": 0.01}
# A number outside of words: "qsgd8" has none, "bucket=64K" has one.
NUMBER = re.compile(r"(?<![\w.])(\d+\.?\d*(?:e[+-]?\d+)?)(" +
                    "|".join(sorted((u for u in UNITS if u), key=len, reverse=True)) +
                    r")?(?![\w.%])", re.IGNORECASE)


Number = namedtuple("Number", "value text")


def varying(cells):
    """{factor: its levels} of the factors in which some {factor: level} differ."""
    names = dict.fromkeys(name for levels in cells for name in levels)
    found = {name: list(dict.fromkeys(levels.get(name, "absent") for levels in cells)) for name in names}
    return {name: some for name, some in found.items() if len(some) > 1}


def speaks(level):
    """Whether a level says by itself which factor it belongs to."""
    return level[:1].isalpha() and level not in ("on", "off", "none", "null", "true", "false",
                                                 "auto", "absent")


def make_labels(cells, factors, around=None):
    """{cell: its levels of the factors that vary}. In a one-at-a-time design (`around`: the levels of its baseline)
    only those that differ from the baseline's. A level of two factors is told with its factor."""
    names = [name for name in factors if len({levels.get(name) for levels in cells.values()}) > 1]
    owners = Counter(level for name in names for level in {levels.get(name) for levels in cells.values()})
    labels = {}
    for cell, levels in cells.items():
        telling = [name for name in names if name in levels
                   and (around in (None, levels) or levels[name] != around.get(name))]
        labels[cell] = ", ".join(levels[name] if speaks(levels[name]) and owners[levels[name]] == 1 else
                                 f"{name} {levels[name]}" for name in telling) or cell
    return labels


def numbers(levels):
    """{level: Number} if the levels differ in one number only, such as 64K and 1M, or
    iallreduce:bucket=64K and iallreduce:bucket=1M; else {}. Levels without any number (none) are
    left out."""
    found = {level: NUMBER.findall(level) for level in levels}
    found = {level: tokens for level, tokens in found.items() if tokens}
    if len(found) < 2 or len({NUMBER.sub("#", level) for level in found}) > 1:
        return {}
    values = {level: [Number(float(digits) * UNITS[unit.lower()], digits + unit)
                      for digits, unit in tokens] for level, tokens in found.items()}
    varying = [i for i, column in enumerate(zip(*values.values()))
               if len({number.value for number in column}) > 1]
    return {level: row[varying[0]] for level, row in values.items()} if len(varying) == 1 else {}


def group_cells(cells, factors):
    """[(((factor, level), ..) of the other factors, cells that differ in `factors` alone)]."""
    groups = {}
    for cell in cells:
        rest = tuple((name, level) for name, level in cell.levels.items() if name not in factors)
        groups.setdefault(rest, []).append(cell)
    return list(groups.items())


def rest_label(rest, cells):
    """A name for a group: its levels of factors that vary over all cells; "" if none does."""
    return ", ".join(level if speaks(level) else f"{name} {level}" for name, level in rest
                     if len({cell.levels.get(name) for cell in cells}) > 1)


def chosen(cells, wanted):
    """The cell of this name or label, or the only one with these levels; None: no such cell."""
    for cell in cells:
        if wanted in (cell.name, cell.label):
            return cell
    levels = dict(part.partition("=")[::2] for part in wanted.split(","))
    found = [cell for cell in cells if all(cell.levels.get(name) == level
                                           for name, level in levels.items())]
    return found[0] if len(found) == 1 else None


def set_baseline(all_results, wanted):
    """In each of the Results that has it, the cell of this name, label or levels is the baseline."""
    hits = [(results, chosen(results.cells, wanted)) for results in all_results]
    if not any(cell for _, cell in hits):
        names = [cell.name for results in all_results for cell in results.cells]
        near = difflib.get_close_matches(wanted, names, 1, 0)
        raise BadInput(f"baseline {wanted}: no single configuration is called that"
                       + (f": did you mean {near[0]}?" if near else ""))
    for results, cell in hits:
        if cell:
            for other in results.cells + results.empty:
                other.baseline = other is cell
            results.baseline = cell
