"""What a study is: its cells, and the order of its runs."""

import hashlib
import itertools
import random
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One combination of levels, and how it is run."""

    id: str  # names its folders: readable, safe as a file name, unique in the study
    levels: dict  # factor -> level, as text
    baseline: bool
    ranks: int
    words: list  # options of `gradwire train`, without --seed and --out
    environment: dict  # variable -> value; None: unset it
    testbed: dict | None  # {"hosts": n, "rate": "1gbit", "per_host": k}; None: none
    line: int  # of the spec: what to change if the cell is refused
    lines: dict  # factor -> line of its level
    set_by: dict  # setting -> (factor, or None for what all cells share; line)


@dataclass(frozen=True)
class Study:
    """A spec, read and checked, as --short or not."""

    name: str
    path: str
    text: str
    sha256: str
    short: bool
    claim: str
    source: list
    factors: dict  # name -> levels, as text, in the order of the spec
    design: str
    baseline: str | None  # id of its cell
    blocks: list  # (repetition, seed): runs of one block share their seed and run close in time
    cells: list
    retries: int
    timeout_s: float | None  # None: no limit
    order_seed: int
    report: dict  # hints for the analysis
    raw: dict  # the spec as it stands, scalars as text


@dataclass(frozen=True)
class Planned:
    """One run."""

    cell: Cell
    repetition: int  # from 1
    seed: int
    block: int  # index in Study.blocks
    folder: str  # below the results folder: bBB-sSEED/CELL


def grid(factors):
    """Every combination of levels."""
    for levels in itertools.product(*factors.values()):
        yield dict(zip(factors, levels))


def one_at_a_time(factors, baseline):
    """The baseline, and what differs from it in one factor."""
    yield baseline
    for name, levels in factors.items():
        for level in levels:
            if level != baseline[name]:
                yield {**baseline, name: level}


def matches(rule, levels):
    """Whether a cell has all levels that a rule names."""
    return all(levels[name] == level for name, level in rule.items())


def slug(text):
    """A level's or factor's name as part of a file's."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_") or "empty"


LONGEST_ID = 160  # below the 255 bytes of a file's name, with room for a temporary one


def cell_id(levels):
    """Unique as long as the slugs of a factor's levels are, which spec.py sees to."""
    name = ",".join(f"{slug(factor)}={slug(level)}" for factor, level in levels.items())
    if len(name) <= LONGEST_ID:
        return name
    return name[:LONGEST_ID - 9] + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]


def plan(study):
    """All runs in the order they are to be made: block by block, so that what drifts in time meets
    all cells alike, and shuffled within a block. A block's order hangs on order_seed and its own
    index alone, so that more repetitions later leave the first ones where they are."""
    runs = []
    for block, (repetition, seed) in enumerate(study.blocks):
        cells = list(study.cells)
        random.Random(f"{study.order_seed}:{block}").shuffle(cells)
        runs += [Planned(cell, repetition, seed, block, f"b{block:02d}-s{seed}/{cell.id}")
                 for cell in cells]
    return runs
