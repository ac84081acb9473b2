"""A study: its cells, and the order of its runs."""

import hashlib
import random
import re
from dataclasses import dataclass

from ablation.base import Base

LARGEST_SEED = 2**52  # of gradwire's --seed


@dataclass(frozen=True)
class Cell:
    """One combination of levels, and how to run it."""

    id: str  # of its folders: readable, safe as a file name, unique in the study
    levels: dict  # factor -> level, as text
    baseline: bool
    base: Base  # what its ranks run
    ranks: int
    words: list  # options, without --seed and --out
    places: dict  # place of the command -> text
    environment: dict  # variable -> value; None: unset it
    testbed: dict | None  # {"hosts": n, "rate": "1gbit", "per_host": k}; None: none
    line: int  # of the spec, for messages
    lines: dict  # factor -> line of its level
    set_by: dict  # setting -> (factor, or None if all cells share it; line)
    simulated: bool = False  # one process plays its ranks,
    measured: bool = False  # and measures before what one of them computes

    @property
    def processes(self):
        """How many the launcher starts."""
        return 1 if self.simulated else self.ranks

    @property
    def exact(self):
        """Whether its runs have the same figures each time: simulated, and nothing drawn or measured."""
        return self.simulated and not self.measured and "--inject-skew" not in self.words


@dataclass(frozen=True)
class Study:
    """A spec, read and checked."""

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
    claims: list  # those that it tests, as {key: text}; analysis/reporting/claims.py has the keys
    doubt: str | None  # a line on what it states and can never decide; None: nothing
    tune: object = None  # tune.Tune: trials choose options of its cells first
    trials: bool = False  # it is those trials


@dataclass(frozen=True)
class Planned:
    """One run."""

    cell: Cell
    repetition: int  # from 1
    seed: int
    block: int  # index in Study.blocks
    folder: str  # below the results folder: bBB-sSEED/CELL


def one_at_a_time(factors, baseline):
    """The baseline, and every cell that differs from it in one factor."""
    yield baseline
    yield from ({**baseline, name: level} for name, levels in factors.items() for level in levels
                if level != baseline[name])


def slug(text):
    """A level's or factor's name as part of a file's."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_") or "empty"


LONGEST_ID = 160  # of the 255 bytes of a file name


def cell_id(levels):
    """Unique, since spec.py checks that the slugs of a factor's levels are."""
    name = ",".join(f"{slug(factor)}={slug(level)}" for factor, level in levels.items())
    if len(name) <= LONGEST_ID:
        return name
    return name[:LONGEST_ID - 9] + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]


def plan(study):
    """All runs in order: block by block, so that drift in time affects all cells alike, and
    shuffled within a block. A block's order depends on order_seed and its index alone, so that
    adding repetitions later does not change the first ones."""
    runs = []
    for block, (repetition, seed) in enumerate(study.blocks):
        cells = list(study.cells)
        random.Random(f"{study.order_seed}:{block}").shuffle(cells)
        runs += [Planned(cell, repetition, seed, block, f"b{block:02d}-s{seed}/{cell.id}")
                 for cell in cells]
    return runs
