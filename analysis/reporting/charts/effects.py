"""Which factors matter: step time by the levels of each, and whether factors interact."""

from collections import namedtuple
from itertools import combinations

import numpy

from .. import figure, levels, panels, rows, stats, verdicts
from ..model import Chart, NotShown, Table

TITLE = "Effect of each factor"

# A level: its cells, its Interval against the factor's reference, over `of` pairs of cells.
Effect = namedtuple("Effect", "level cells ratio of")
# The worst prediction of main effects alone, in seconds.
Deviation = namedtuple("Deviation", "cell measured predicted")


def twins(factor, level, reference, cells):
    """[(cell at the level, cell at the reference)] that differ in this factor alone."""
    found = []
    for _, group in levels.group_cells(cells, (factor,)):
        by_level = {cell.levels.get(factor): cell for cell in group}
        if level in by_level and reference in by_level:
            found.append((by_level[level], by_level[reference]))
    return found


def ratio_of(results, pairs):
    """Interval, over blocks, of step time at a level over that at the reference; of each block the
    geometric mean over the cells. Of a single pair it is that of its verdict."""
    verdict = verdicts.family_of(results).of(*pairs[0]) if len(pairs) == 1 else None
    if verdict and verdict.interval.value is not None:
        return verdict.interval
    by_block = {}
    for cell, other in pairs:
        theirs = {run.block: run.step_s for run in other.runs}
        for run in cell.runs:
            if run.block is not None and run.block in theirs:
                by_block.setdefault(run.block, []).append(numpy.log(run.step_s / theirs[run.block]))
    whole = [logs for logs in by_block.values() if len(logs) == len(pairs)]
    if whole:
        return stats.ratio_ci([float(numpy.exp(numpy.mean(logs))) for logs in whole],
                              [1.0] * len(whole))
    logs = [numpy.log(cell.step_s / other.step_s) for cell, other in pairs]
    return stats.Interval(float(numpy.exp(numpy.mean(logs))), None, None, 0, "none",
                          "the runs are not in blocks")


def effects_of(results, factor, cells):
    """(reference, one Effect per level in the study's order): the reference is the baseline's
    level, or the first. Cells count that differ from another one in this factor alone."""
    order, baseline = results.factors[factor], results.baseline
    cells = [cell for _, group in levels.group_cells(cells, (factor,)) if len(group) > 1
             for cell in group]
    met = dict.fromkeys(cell.levels[factor] for cell in cells if factor in cell.levels)
    present = [level for level in order if level in met] + [one for one in met if one not in order]
    reference = baseline.levels.get(factor) if baseline is not None else None
    if reference not in present:
        reference = present[0]
    found = []
    for level in present:
        pairs = twins(factor, level, reference, cells)
        members = [cell for cell in cells if cell.levels.get(factor) == level]
        ratio = ratio_of(results, pairs) if pairs and level != reference else None
        found.append(Effect(level, members, ratio, len(pairs)))
    return reference, found


def importance(effects):
    """The slowest level over the quickest."""
    values = [1.0] + [one.ratio.value for one in effects if one.ratio is not None]
    return max(values) / min(values)


def deviation_of(cells, factors):
    """The cell that main effects alone (one number per level, least squares of logarithms) predict
    worst; None if there are as many effects as cells, so that nothing can deviate."""
    columns = [(name, level) for name in factors
               for level in sorted({cell.levels.get(name, "") for cell in cells})[1:]]
    design = numpy.array([[1.0] + [cell.levels.get(name, "") == level for name, level in columns]
                          for cell in cells], dtype=float)
    if len(cells) <= numpy.linalg.matrix_rank(design):
        return None
    logs = numpy.log([cell.step_s for cell in cells])
    predicted = design @ numpy.linalg.lstsq(design, logs, rcond=None)[0]
    worst = int(numpy.argmax(numpy.abs(logs - predicted)))
    return Deviation(cells[worst], *map(float, numpy.exp([logs[worst], predicted[worst]])))


def table_of(found):
    table = Table(["factor", "level", "configurations", "step, median (ms)", "least (ms)",
                   "most (ms)", "over the reference", "low", "high", "compared"], [])
    for factor, (reference, effects) in found.items():
        for one in effects:
            steps = [cell.step_s * 1e3 for cell in one.cells]
            ratio = rows.figures(one.ratio) if one.level != reference else [1.0, None, None]
            star = "* " if any(cell.marks for cell in one.cells) else ""
            name = star + one.level + (" (reference)" if one.level == reference else "")
            table.rows.append([factor, name, len(steps), float(numpy.median(steps)), min(steps),
                               max(steps), *ratio, one.of])
    return table


def draw(fig, shown, cells):
    """One row per level, factor by factor, over one axis: one point per cell, lines between cells
    that differ in this factor alone."""
    steps = {cell.name: cell.step_s for cell in cells}
    scale, unit = rows.unit(steps.values())
    steps = {name: step * scale for name, step in steps.items()}
    entries = [figure.dot("a configuration", figure.FAINT),
               figure.line("differ in the factor alone", figure.FAINT, linewidth=0.8)]
    if any(len(one.cells) > 1 for _, one in shown):
        entries.append(figure.dot("median", figure.SERIES[0], marker="D"))
    grid = rows.Rows(fig, [f"{factor}: {one.level}" for factor, one in shown],
                     legend=entries + panels.hollow(cells))
    ax = grid.axes[0]
    log = panels.spread(steps.values()) > 4
    panels.axis(ax, "x", steps.values(), log, most=8)
    ax.set_xlabel(f"step time ({unit}" + (", logarithmic)" if log else ")"))
    places = {(factor, one.level): grid.at(i) for i, (factor, one) in enumerate(shown)}
    for factor in dict.fromkeys(factor for factor, _ in shown):
        for _, group in levels.group_cells(cells, (factor,)):
            draw_group(ax, [(places[factor, cell.levels[factor]], steps[cell.name], cell)
                            for cell in group if (factor, cell.levels.get(factor)) in places])
    for i, (factor, one) in enumerate(shown):
        if len(one.cells) > 1:
            ax.plot(numpy.median([steps[cell.name] for cell in one.cells]), grid.at(i), "D",
                    color=figure.SERIES[0], markersize=5, zorder=4)
        if i and factor != shown[i - 1][0]:
            ax.axhline(sum(grid.heights[:i]), color=figure.FAINT, linewidth=0.8)


def draw_group(ax, dots):
    """Cells that differ in one factor alone: (y, step, cell) of each."""
    if len(dots) > 1:
        y, x, cells = zip(*sorted(dots, key=lambda dot: dot[:2]))
        ax.plot(x, y, color=figure.FAINT, linewidth=0.6, alpha=0.7)
        for place, step, cell in zip(y, x, cells):
            ax.plot(step, place, "o", markersize=5 if cell.oversubscribed else 4, zorder=3,
                    color=figure.FAINT,
                    markerfacecolor=figure.GROUND if cell.oversubscribed else figure.FAINT)


def words_on(deviation):
    share = deviation.measured / deviation.predicted - 1
    return ("Interaction: the product of the single factors' effects predicts all configurations "
            f"within {stats.percent(abs(share))}; the worst is {deviation.cell.label}, "
            f"{stats.percent(abs(share))} {'slower' if share > 0 else 'faster'} than predicted. It "
            "is the largest of many deviations, including noise: a hint, not a test.")


def told(results, factor, cells):
    """Whether configurations that differ in this factor alone differ in step time; None: it cannot be told."""
    found = verdicts.differs(results, [pair for _, group in levels.group_cells(cells, (factor,))
                                       for pair in combinations(group, 2)])
    return True if True in found else False if False in found else None


def see(results, found, cells):
    """Slowest over quickest level, by what the verdicts say of the factor."""
    states = {factor: told(results, factor, cells) for factor in found}
    said = [words + ": " + ", ".join(f"{factor} {importance(found[factor][1]):.3g} times"
                                     for factor in found if states[factor] is state)
            for state, words in ((True, "beyond the noise"), (False, "inside the noise"),
                                 (None, "not to be told from these runs")) if state in states.values()]
    return f"Slowest over quickest level of each factor, {'; '.join(said)}."


def notes_of(results, found, cells, hidden):
    notes = [f"No two configurations with finished runs differ in {factor} alone."
              for factor in results.factors if factor not in found]
    if len(found) > 1:
        deviation = deviation_of(cells, list(found))
        notes.append(words_on(deviation) if deviation else
                     "Interaction is unknown: no two factors were varied together in enough "
                     "configurations.")
    if hidden:
        notes.append(f"{hidden} levels are in the table only.")
    return notes + rows.remarks(cells)


def build(results):
    cells = results.cells
    varied = [name for name in results.factors
              if any(len(group) > 1 for _, group in levels.group_cells(cells, (name,)))]
    if not varied:
        raise NotShown("No two configurations with finished runs differ in a single factor.")
    found = {name: effects_of(results, name, cells) for name in varied}
    found = dict(sorted(found.items(), key=lambda item: -importance(item[1][1])))
    lines = [(factor, one) for factor, (_, effects) in found.items() for one in effects]
    shown = lines[:rows.MOST]
    caption = ("Step time by the levels of each factor, the factor with the largest measured effect first: "
               "a point is a configuration, the median over its runs of their step time. Lines "
               "join configurations that differ in this factor alone; on a logarithmic axis they "
               "are parallel if factors do not interact. An effect is the step at a level divided "
               "by that at the reference (the baseline's level, else the first), geometric mean "
               "over configurations that differ in nothing else; its interval, in the table, is "
               "over blocks: of a single pair that of its verdict, of several one of 95%, which "
               "no verdict rests on. Measured.")
    return Chart(TITLE, caption, lambda fig: draw(fig, shown, cells),
                 table_of(found), notes_of(results, found, cells, len(lines) - len(shown)),
                 see(results, found, cells))
