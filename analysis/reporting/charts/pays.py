"""Does it pay? For each configuration the link rate below which it is sooner at the target than its baseline."""

import math
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
from scipy import special

from .. import levels, reach, rows, stats, verdicts
from ..info import number
from ..loose import rate_text
from ..model import Chart, NotShown, Table, judged

TITLE = "Does it pay? The link rate below which it does"
FACTOR = "rate"
LEVEL = 0.95
POINTS = 1001  # rates that are looked at, from the slowest link to the fastest
CAPTION = (
    "Seconds within steps until the first test that has the target, less those of the baseline over the same link with "
    "the same seed, at each rate. Between the measured rates this difference is taken to grow in proportion to 1/rate, "
    "as the time of bytes over a link does: a line by least squares for each seed. They are even at the rate at which "
    "the mean line is zero. At each rate a t-test over the seeds at 95% decides whether the configuration is sooner (it "
    "pays) or later (it costs); between these rates it cannot be told (Fieller's interval of the ratio of intercept and "
    "slope). Each row is judged alone. Nothing is said beyond the measured rates, nor where a run does not reach the "
    "target.")

# `rates`: the slowest and the fastest; `value`, `low`, `high`: rates, None where there is none between them; `better`:
# it surely pays at some (True), at none and surely costs at some (False), else None.
Row = namedtuple("Row", "label reference goal rates value low high text better")


@dataclass(frozen=True)
class Span:
    """Signs of the mean difference over rates: -1 surely sooner, 1 surely later, 0 not to be told."""

    rates: np.ndarray  # rising
    signs: np.ndarray
    mean: np.ndarray

    def below(self):
        """The rate up to which it is surely sooner; None: not even over the slowest link."""
        told = np.flatnonzero(self.signs != -1)
        return self.rates[-1] if not len(told) else self.rates[told[0] - 1] if told[0] else None

    def above(self):
        """The rate from which on it is surely later; None: not even over the fastest link."""
        told = np.flatnonzero(self.signs != 1)
        return self.rates[0] if not len(told) else self.rates[told[-1] + 1] if told[-1] + 1 < len(self.rates) else None

    def even(self):
        """Where the mean difference is zero; None: nowhere between the measured rates, or more than once."""
        turns = np.flatnonzero(np.sign(self.mean[1:]) != np.sign(self.mean[:-1]))
        return self.rates[turns[0]] if len(turns) == 1 else None


def span(rates, sides):
    """sides: the configuration's and the baseline's [seed][rate] of (seconds to the target, to the test before)."""
    seen = np.geomspace(min(rates), max(rates), POINTS)
    (one, before), (other, its_before) = (np.moveaxis(np.asarray(side), 2, 0) for side in sides)
    each = lines(rates, one - other, seen)
    # As if a run reached it anywhere between two tests, as in the ratio of both times (reach.estimate).
    coarse = (lines(rates, one - before, seen) ** 2 + lines(rates, other - its_before, seen) ** 2).mean(axis=0) / 12
    mean, error = each.mean(axis=0), np.sqrt((each.var(axis=0, ddof=1) + coarse) / len(each))
    far = np.abs(mean) > special.stdtrit(len(each) - 1, (1 + LEVEL) / 2) * error
    return Span(seen, np.where(far, np.sign(mean), 0), mean)


def lines(rates, figures, seen):
    """[seed] of a line over 1/rate, by least squares, at the rates `seen`; figures: [seed][rate]."""
    slope, intercept = np.polyfit(1 / np.asarray(rates), figures.T, 1)
    return slope[:, None] / seen + intercept[:, None]


def link_of(info):
    """Bits a second of the links that a run crossed, emulated or simulated; None: it has none, or of several rates."""
    link = info.get("link")
    if link:
        return None if link.get("host_rates") or link.get("racks") else link["rate_bits_per_s"]
    simulated = 8 * number(info, "simulated.network.link.bytes_per_s")
    return None if math.isnan(simulated) else simulated


def rate_of(cell):
    """Bits a second of its runs' links; None: they have none, or several."""
    rates = {link_of(run.info) for run in cell.runs}
    return rates.pop() if len(rates) == 1 else None


def row(results, label, pairs, goal):
    """`pairs`: {rate: (cell, its reference)}."""
    family, rates = verdicts.family_of(results), sorted(pairs)
    sides = [family.to[pairs[rate][0].name, goal] for rate in rates]
    seeds = sorted(set.intersection(*(set(side) for both in sides for side in both)))
    told = [label, levels.rest_label(rest_of(pairs[rates[0]][1]), results.cells), goal, (rates[0], rates[-1])]
    never = [[[math.isinf(both[side][seed][0]) for both in sides] for seed in seeds] for side in (0, 1)]
    late = [sum(map(any, side)) for side in never]  # runs of one seed learn alike over all links
    if seeds and all(map(all, never[0])) and not late[1]:
        return Row(*told, None, None, None, "pays at none of these rates: no run reaches the target", False)
    if any(late):
        return Row(*told, None, None, None, f"cannot be told: {late[0]} of its {len(seeds)} seeds and {late[1]} of the "
                   "baseline's do not reach the target", None)
    if len(seeds) < stats.LEAST:
        return Row(*told, None, None, None, f"cannot be told: {stats.too_few(len(seeds), 'seeds')}", None)
    found = span(rates, [[[both[side][seed] for both in sides] for seed in seeds] for side in (0, 1)])
    low, high = found.below(), found.above()
    return Row(*told, found.even(), low, high, said(rates[0], rates[-1], low, high),
               True if low else False if high else None)


def said(slowest, fastest, low, high):
    measured = f"from {rate_text(slowest)} to {rate_text(fastest)}"
    if low == fastest:
        return f"pays at all rates {measured}"
    if high == slowest:
        return f"pays at none {measured}"
    parts = [f"{words} {rate_text(float(f'{rate:.3g}'))}"
             for words, rate in (("pays up to", low), ("costs from", high)) if rate]
    return ", ".join(parts) or f"cannot be told at any rate {measured}"


def rest_of(cell):
    return tuple((name, level) for name, level in cell.levels.items() if name != FACTOR)


def found_in(results):
    """[Row] of each configuration over several links, of each goal in seconds."""
    family, references = verdicts.family_of(results), verdicts.references(results)
    made = []
    for rest, cells in levels.group_cells(results.cells, (FACTOR,)):
        pairs = {rate: (cell, references[cell.name]) for cell in cells
                 if (rate := rate_of(cell)) and cell.name in references and rate_of(references[cell.name]) == rate}
        if len(pairs) > 1:
            made += [row(results, levels.rest_label(rest, results.cells), pairs, goal)
                     for goal in family.goals if goal.figure == "seconds"]
    return made


def table_of(found):
    columns = ["configuration", "compared with", "figure", "even at (Mbit/s)", "pays up to", "costs from", "verdict"]
    return Table(columns, [
        [one.label, one.reference, reach.named(one.goal),
         *(rate and rate / 1e6 for rate in (one.value, one.low, one.high)), judged(one.text, one.better)]
        for one in found])


def build(results):
    found = found_in(results)
    if not found:
        raise NotShown("No configuration is compared with a baseline over links of several rates by the time to a "
                       "target that the study names.")
    said = [f"{one.label}: {one.text}" for one in found]
    return Chart(TITLE, CAPTION, None, table_of(found), rows.remarks(results.cells),
                 "; ".join(said[:rows.MOST_NOTES]) + ".")
