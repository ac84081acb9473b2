"""Break-even: over the ranks the link rate below which a configuration's simulated step is shorter than its
reference's."""

import math
from collections import namedtuple

import numpy as np

from .. import levels, rows, verdicts
from ..info import number
from ..loose import rate_text
from ..model import Chart, NotShown, Table

TITLE = "Break-even: the link rate below which it is faster"
CAPTION = (
    "Simulated steps over links of several rates: for each number of ranks the rate at which a configuration's step is as "
    "long as that of the configuration it is compared with. Between two simulated rates the "
    "logarithm of the ratio is taken to be linear in that of the rate; steps within 5%, by which the simulator may be off, "
    "count for neither. Nothing is said beyond the simulated rates.")
OFF = math.log(1.05)

# `rate`: bits a second, None: `text` says why; `ratios`: {rate: step over the reference's}.
Point = namedtuple("Point", "ranks rate text ratios")
Line = namedtuple("Line", "panel label reference points")


def rate_of(cell):
    """Bits a second of the hosts' simulated links; None: they are real, or differ."""
    rates = {8 * number(run.info, "simulated.network.link.bytes_per_s") for run in cell.runs}
    rate = rates.pop()
    return None if rates or math.isnan(rate) else rate


def ranks_of(cell):
    return cell.runs[0].info["machine"]["ranks"]


def factor_of(results, read):
    """The factor whose level says what read(cell) is, for all cells; None: there is none."""
    for factor in results.factors:
        found = {}
        for cell in results.cells:
            found.setdefault(cell.levels.get(factor), set()).add(read(cell))
        if len(found) > 1 and all(len(values) == 1 for values in found.values()) and \
                len(set.union(*found.values())) == len(found):
            return factor
    return None


def point(ranks, ratios):
    """Of {rate: ratio of steps}."""
    rates = [rate for rate in sorted(ratios) if abs(math.log(ratios[rate])) > OFF]
    logs = [math.log(ratios[rate]) for rate in rates]
    turns = [i for i in range(1, len(logs)) if (logs[i - 1] < 0) != (logs[i] < 0)]
    if len(turns) != 1:
        some = "at all" if len(rates) == len(ratios) else f"from {rate_text(rates[0])}" if rates and \
            rates[0] > min(ratios) else f"to {rate_text(rates[-1])}" if rates else ""
        return Point(ranks, None, "crosses more than once" if turns else "within 5% at all" if not rates else
                     f"{'faster' if logs[0] < 0 else 'slower'} {some}", ratios)
    i = turns[0]
    rate = math.exp(np.interp(0, *zip(*sorted(zip(logs[i - 1:i + 1], map(math.log, rates[i - 1:i + 1]))))))
    return Point(ranks, rate, f"{'faster below' if logs[0] < 0 else 'faster above'} {rate_text(float(f'{rate:.3g}'))}",
                 ratios)


def lines_of(results):
    by_rate, by_ranks = factor_of(results, rate_of), factor_of(results, ranks_of)
    references = verdicts.references(results)
    if None in (by_rate, by_ranks) or not references:
        return []
    within = [name for name in results.hints.get("compare_within") or [] if name not in (by_rate, by_ranks)]
    made = []
    for rest, group in levels.group_cells(results.cells, (by_rate, by_ranks)):
        ratios = {}
        for cell in group:
            other = references.get(cell.name)
            if other and rate_of(other) == rate_of(cell) and ranks_of(other) == ranks_of(cell):
                ratios.setdefault(ranks_of(cell), {})[rate_of(cell)] = cell.step_s / other.step_s
        points = [point(ranks, found) for ranks, found in sorted(ratios.items()) if len(found) > 1]
        if points:
            panel = tuple(pair for pair in rest if pair[0] in within)
            label, against = (levels.rest_label([pair for pair in whole if pair[0] not in (*within, by_rate, by_ranks)],
                                                results.cells)
                              for whole in (rest, tuple(references[group[0].name].levels.items())))
            made.append(Line(levels.rest_label(panel, results.cells), label, against, points))
    return made


def build(results):
    lines = lines_of(results)
    if not lines:
        raise NotShown("No simulated configuration is compared with another over links of several rates and numbers of "
                       "ranks.")
    rates = sorted({rate for line in lines for one in line.points for rate in one.ratios})
    table = Table(["configuration", "compared with", "ranks", *(f"step, ratio at {rate_text(rate)}" for rate in rates),
                   "even at (Gbit/s)", "verdict"],
                  [[", ".join(filter(None, (line.panel, line.label))), line.reference, one.ranks,
                    *(one.ratios.get(rate) for rate in rates), one.rate and one.rate / 1e9, one.text]
                   for line in lines for one in line.points])
    even = [one.rate for line in lines for one in line.points if one.rate]
    see = (f"{len(even)} of {sum(len(line.points) for line in lines)} comparisons break even within the simulated rates"
           + (f", from {rate_text(float(f'{min(even):.3g}'))} to {rate_text(float(f'{max(even):.3g}'))}." if even else "."))
    return Chart(TITLE, CAPTION, None, table, rows.remarks(results.cells), see)
