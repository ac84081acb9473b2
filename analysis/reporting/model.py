"""The runs of a report, and its charts. Seconds and bytes; None or NaN: not measured, never 0."""

from collections import Counter, namedtuple
from dataclasses import dataclass, field
from statistics import median

from . import ends, steps
from .info import bound


@dataclass
class Run:
    """One finished run, without the steps of its warm-up (batches.py has the rule)."""

    folder: str  # relative to the folder that the report is of
    info: dict  # run.json
    experiment: dict | None  # experiment.json of the runner; None: not made by it
    levels: dict  # factor -> level, as text
    cell: str  # the same for repetitions of the same levels
    block: str | None  # runs of one block are pairs: close in time, same seed; None: of no study
    walls: object  # numpy array: each step on its slowest rank, seconds, in order of the steps
    # Time and byte columns of batches.csv -> mean over ranks and the steps that step_s is of, of the others
    # over all steps; None: blank.
    means: dict
    epochs: list  # rows of epochs.csv, as {column: number or None}
    step_s: float  # the step time of run.json (steps.py): what the statistics compare
    marks: list = field(default_factory=list)  # warnings on its figures, e.g. "oversubscribed"
    # Column -> share of the rows of `means` that are not blank; a column that is not here: all.
    present: dict = field(default_factory=dict)
    evaluations: list = field(default_factory=list)  # rows of evaluations.csv; empty: it has none
    interrupted: float | None = None  # share of the steps in which some rank was; None: not known

    @property
    def statistic(self):
        """What step_s is."""
        return steps.statistic(self.info)

    @property
    def kind(self):
        """The kind of step_s."""
        return steps.kind(self.info)

    @property
    def bound_s(self):
        """The bound of its step; None: not measured (train --bound)."""
        return bound(self.info, self.step_s)[0]

    @property
    def of_bound(self):
        """How many times that bound its step took."""
        return bound(self.info, self.step_s)[1]


@dataclass
class Cell:
    """Runs of the same levels."""

    name: str
    label: str  # short, for axes and tables: the levels of the factors that vary
    levels: dict
    runs: list
    baseline: bool = False

    def figures(self, figure):
        """figure(run) of the runs that have it."""
        return [value for value in map(figure, self.runs) if value is not None]

    def middle(self, figure):
        """Median over the runs of figure(run); None: no run has it."""
        known = self.figures(figure)
        return median(known) if known else None

    @property
    def step_s(self):
        return self.middle(lambda run: run.step_s)

    @property
    def kind(self):
        """The kind of its runs' step_s; None: of two kinds."""
        kinds = {run.kind for run in self.runs}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def marks(self):
        """Those of any run."""
        return sorted({mark for run in self.runs for mark in run.marks})

    @property
    def oversubscribed(self):
        return "oversubscribed" in self.marks


# A run that began, and has no figures: one of ends.LOST, its folder, its cell, what happened, its seed if known.
Lost = namedtuple("Lost", "end folder cell why seed", defaults=(None,))


@dataclass
class Results:
    """One study of experiments/run, or runs that were found beside each other."""

    name: str
    folder: str
    study: dict | None  # study.json of the runner
    factors: dict  # factor -> levels, in the order of the spec
    cells: list
    baseline: Cell | None
    left_out: list  # (folder, why): foreign, half-written, of another schema
    lost: list  # of Lost: runs that began, and have no figures
    missing: list = field(default_factory=list)  # folders of runs that are planned, and not made
    # Cells of the study without a finished run: they are not among `cells`.
    empty: list = field(default_factory=list)
    kept: str | None = None  # the folder of experiments/results that they are of; None: folders of runs
    # What the reader expects beside the study's author: {levels: words}, as in expect.py.
    expect: dict = field(default_factory=dict)
    judged: object = field(default=None, repr=False, compare=False)  # what verdicts.family_of() keeps
    trials: object = None  # Results of the trials by which the study's `tune:` chose options; not part of it

    @property
    def runs(self):
        return [run for cell in self.cells for run in cell.runs]

    def ended(self, end):
        """The Lost that ended so."""
        return [one for one in self.lost if one.end == end]

    @property
    def counts(self):
        """{how a run ended: number}, in the words of ends.py."""
        found = Counter(ends.of_run(run.info) for run in self.runs) + Counter(one.end for one in self.lost)
        return found + Counter({ends.NOT_RUN: len(self.missing), ends.LEFT_OUT: len(self.left_out)})

    @property
    def hints(self):
        """`report` of the spec: what its author wants to see."""
        return (self.study or {}).get("report") or {}


class JudgedNumber(float):
    """A figure of a table that differs: `better` says whether for the better."""


class JudgedText(str):
    """The same as text."""


def judged(value, better):
    """`value` for a table, marked as better (True) or worse (False); None: neither was shown."""
    if value is None or better is None:
        return value
    made = (JudgedText if isinstance(value, str) else JudgedNumber)(value)
    made.better = better
    return made


@dataclass
class Table:
    """The figures of a chart. A cell is text or a number; None is shown as absent."""

    columns: list  # with units in parentheses
    rows: list


@dataclass
class Chart:
    """What a chart's build() returns."""

    title: str
    caption: str  # what is drawn, how it was measured or modelled, what the interval is over
    draw: object  # draw(figure): fills a matplotlib figure; None: a table alone, or a kept drawing
    table: Table | None  # None: of a kept drawing
    notes: list = field(default_factory=list)  # marks and limits
    see: str = ""  # what there is to see, in a line
    name: str = ""  # its module's


class NotShown(Exception):
    """Why a chart cannot be drawn from these runs: one sentence."""
