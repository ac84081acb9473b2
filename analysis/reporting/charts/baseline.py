"""Each configuration against the baseline: what differs, and what is inside the noise."""

import re

from .. import figure, panels, rows
from ..model import Chart, NotShown, Table, judged
from ..verdicts import compared, family_of, references

TITLE = "Against the baseline"

WIDE_RANGE = 3.0  # largest ratio / least: beyond it the axis is logarithmic

CAPTION = (
    "Step time divided by that of {reference}: geometric mean of the ratios {how}, of each "
    "run's step time. All pairs of configurations are judged together (Holm): the chance of "
    "reporting any difference where there is none is at most 5%. Each line is the interval at the level at which its difference "
    "was judged; it excludes 1 only if the difference is significant. The pale band is the "
    "least difference that these repetitions would detect with a chance of 80%.")


def short(comparison):
    """The first words of the verdict; the table has all of it."""
    return "- " + re.split(r" \(|: ", comparison.text)[0]


def colour(comparison):
    if not comparison.differs:
        return figure.FAINT
    return figure.WORSE if comparison.interval.value > 1 else figure.BETTER


def span(visible):
    """Ends of the axis: all ratios, and as much of intervals and bands as keeps these legible."""
    ratios = [1.0] + [one.interval.value for _, one in visible if rows.known(one.interval.value)]
    reach = [end for _, one in visible for end in (one.interval.low, one.interval.high)
             if rows.known(end)]
    reach += [end for _, one in visible if one.mdd is not None
              for end in (1 + one.mdd, 1 / (1 + one.mdd))]
    low, high = min(ratios), max(ratios)
    room = max(1.5, high / low)
    low, high = max(min([low] + reach), low / room), min(max([high] + reach), high * room)
    margin = (high / low) ** 0.03 if high > low else 1.05
    return low / margin, high * margin


def legend(visible, words):
    entries = [(figure.dot(words[0], figure.WORSE),
                lambda one: one.differs and one.interval.value > 1),
               (figure.dot(words[1], figure.BETTER),
                lambda one: one.differs and one.interval.value <= 1),
               (figure.dot("inside the noise", figure.FAINT), lambda one: one.differs is False),
               (figure.dot("cannot be told", figure.FAINT), lambda one: one.differs is None),
               (figure.patch("too small to be seen", figure.GRID),
                lambda one: one.mdd is not None)]
    return [entry for entry, holds in entries if any(holds(one) for _, one in visible)]


def draw(fig, visible, words=("slower", "faster"), what="step time"):
    """[(cell, Comparison)]; `words` for a ratio above and below 1 of `what`."""
    labels = [rows.row_label(cell, short(one)) for cell, one in visible]
    grid = rows.Rows(fig, labels, legend=legend(visible, words))
    ax = grid.axes[0]
    low, high = span(visible)
    if high / low > WIDE_RANGE:
        panels.log_axis(ax, "x", [low, high])
    for i, (_, one) in enumerate(visible):
        y = grid.at(i)
        if one.mdd is not None:
            ax.barh(y, 1 + one.mdd - 1 / (1 + one.mdd), left=1 / (1 + one.mdd), height=rows.THICK,
                    facecolor=figure.GRID, linewidth=0, zorder=0.5)
        if one.interval.value is not None:
            rows.whisker(ax, y, one.interval, 1.0, colour(one), within=(low, high))
            ax.plot([one.interval.value], [y], marker="o", color=colour(one), zorder=6)
        else:
            grid.absent(ax, i)
    ax.set_xlim(low, high)
    ax.axvline(1, color=figure.FAINT, linewidth=1.0)
    ax.set_xlabel(f"{what} / baseline's" + (", logarithmic" if high / low > WIDE_RANGE else ""),
                  color=figure.INK)


def table(found, pairs):
    lines = []
    for cell, one in found:
        level = None if one.interval.low is None else one.interval.level * 100
        mdd = None if one.mdd is None else one.mdd * 100
        ratio = judged(one.interval.value, one.interval.value < 1 if one.differs else None)
        lines.append([rows.label(cell), pairs[cell.name].label, one.n, ratio,
                      *rows.ends(one.interval), level, one.p, one.p_adjusted, mdd, one.text])
    return Table(["configuration", "compared with", "runs or pairs", "ratio", "from", "to",
                  "level (%)", "p", "p, Holm", "least difference seen (%)", "verdict"], lines)


def see(found):
    faster = sum(one.differs is True and one.interval.value < 1 for _, one in found)
    slower = sum(one.differs is True and one.interval.value > 1 for _, one in found)
    untold = sum(one.differs is None for _, one in found)
    if untold == len(found):
        return ("Whether a configuration differs from what it is compared with cannot be told from these "
                "repetitions.")
    noise = len(found) - faster - slower - untold
    return (f"Of {len(found)} configurations {faster or 'none'} {'are' if faster > 1 else 'is'} faster "
            f"than what it is compared with, {slower or 'none'} slower, {noise or 'none'} inside the noise"
            + (f", and of {untold} it cannot be told" if untold else "") + ".")


def notes(found, paired, pairs, cells):
    said = rows.noted(
        ("Not compared, since the counterpart has no finished run",
         [cell.label for cell in cells
          if cell.name not in pairs and cell not in list(pairs.values())]),
        ("Inside the noise, which is not the same as equal",
         [cell.label for cell, one in found if one.differs is False]),
        ("Not enough repetitions for a verdict",
         [cell.label for cell, one in found if one.differs is None]))
    if not paired:
        said.append("The runs are not in blocks, so they are not paired: what changed on the "
                    "machine between two runs counts as noise.")
    return said + rows.remarks(cells)


def build(results):
    baseline = results.baseline
    if baseline is None or not baseline.runs:
        raise NotShown("There is no baseline: the study names none, or it has no finished run.")
    pairs = references(results)
    if not pairs:
        raise NotShown("There is nothing beside the baseline.")
    comparisons, paired = compared(results), family_of(results).paired
    found = [(cell, comparisons[cell.name]) for cell in results.cells if cell.name in pairs]
    visible, left_out = rows.chosen(found)
    how = "over pairs of runs of the same block" if paired else "of runs"
    within = results.hints.get("compare_within")
    reference = f"the baseline ({baseline.label})" if not within else (
        f"the configuration with the same {' and '.join(within)} and otherwise the levels of the "
        f"baseline ({baseline.label})")
    return Chart(TITLE, CAPTION.format(reference=reference, how=how),
                 lambda fig: draw(fig, visible), table(found, pairs),
                 notes(found, paired, pairs, results.cells) + left_out, see(found))
