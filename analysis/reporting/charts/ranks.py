"""How the ranks of a run differ, and which one the others waited for."""

from collections import Counter

import numpy as np

from .. import figure, rows
from ..model import Chart, NotShown, Table

TITLE = "Ranks: skew and the slowest"

MOST_POINTS = 16  # ranks drawn as points; more are drawn as quantiles

CAPTION = (
    "A point is a rank: the mean over all its steps after the warm-up, and of several runs their median. Waiting is the "
    "time that a rank waited for later ones; waited for is the time that all others together "
    "waited for this rank because it arrived last. With more than 16 ranks the line is from the "
    "least to the largest, its thick part the middle half of the ranks, and the point the median. "
    "Ringed: the straggler (docs/measurement.md), the rank that the others wait longest for, if each "
    "waits at least 5% of a step for it.")

# Key in results.ranks, title of the panel, colour.
PANELS = [("compute_s", "computation", figure.PART["computation"]),
          ("waiting_s", "waiting", figure.PART["waiting"]),
          ("waited_for_s", "waited for", figure.PART["exposed"])]
RING = {"linestyle": "none", "marker": "o", "markersize": 8, "markerfacecolor": "none",
        "markeredgecolor": figure.INK, "markeredgewidth": 1.2}
COLUMNS = ["compute_s", "waiting_s", "transfer_s", "waited_for_s"]
QUANTILES = {"least": 0, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75, "largest": 1}


def ranks_of(cell):
    """{rank: {column: median over the runs}}."""
    found = {}
    for run in cell.runs:
        for row in run.info["results"].get("ranks") or []:
            for key in COLUMNS + ["last_share"]:
                values = found.setdefault(row["rank"], {}).setdefault(key, [])
                values += [] if row[key] is None else [row[key]]
    return {rank: {key: float(np.median(values)) if values else None
                   for key, values in row.items()} for rank, row in sorted(found.items())}


def stragglers_of(cell):
    """Counter of the ranks that runs named."""
    return Counter(one["rank"] for one in
                   cell.figures(lambda run: run.info["results"].get("straggler")))


def named(cell):
    """The straggler of most of the runs; None: no rank is that of most."""
    found = stragglers_of(cell).most_common(1)
    return found[0][0] if found and 2 * found[0][1] > len(cell.runs) else None


def measured(ranks):
    return any(row["waited_for_s"] is not None for row in ranks.values())


def none_named(figures):
    return ("No run names a straggler." if any(measured(ranks) for _, ranks in figures) else
            "No run measured how long its ranks waited for each other.")


def said_of(cell, ranks):
    """The stragglers that the runs named, as text."""
    found = stragglers_of(cell)
    if not found:
        return "none" if measured(ranks) else "not measured"
    return ", ".join(f"rank {rank}" + (f" ({count} of {len(cell.runs)} runs)"
                                       if count < len(cell.runs) else "")
                     for rank, count in found.most_common())


def draw_points(ax, y, values, straggler, colour):
    ax.plot(list(values.values()), [y] * len(values), linestyle="none", marker="o", color=colour,
            markersize=4.5, markeredgecolor=figure.GROUND, markeredgewidth=0.4, clip_on=False)
    if straggler in values:
        ax.plot([values[straggler]], [y], **RING, clip_on=False)


def draw_quantiles(ax, y, values, straggler, colour):
    low, first, middle, third, high = np.quantile(list(values.values()), list(QUANTILES.values()))
    ax.plot([low, high], [y, y], color=colour, linewidth=1.2)
    ax.plot([first, third], [y, y], color=colour, linewidth=4.5, solid_capstyle="butt")
    draw_points(ax, y, {"middle": middle}, None, figure.INK)
    draw_points(ax, y, {straggler: values[straggler]} if straggler in values else {}, straggler,
                colour)


def draw_panel(grid, ax, key, colour, figures):
    factor, name = rows.unit([row[key] for _, ranks in figures for row in ranks.values()])
    for i, (cell, ranks) in enumerate(figures):
        y = grid.at(i)
        values = {rank: row[key] * factor for rank, row in ranks.items() if row[key] is not None}
        if not values:
            grid.absent(ax, i)
        elif len(values) > MOST_POINTS:
            draw_quantiles(ax, y, values, named(cell), colour)
        else:
            draw_points(ax, y, values, named(cell), colour)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"mean a step ({name})")


def draw(fig, figures):
    stragglers = [named(cell) for cell, _ in figures]
    labels = [rows.row_label(cell, "" if one is None else f"- rank {one} lags")
              for (cell, _), one in zip(figures, stragglers)]
    grid = rows.Rows(fig, labels, [title for _, title, _ in PANELS],
                     [figure.line("straggler", figure.INK, **RING)] if set(stragglers) != {None}
                     else ())
    for ax, (key, _, colour) in zip(grid.axes, PANELS):
        draw_panel(grid, ax, key, colour, figures)


def quantile_rows(ranks):
    """(name, figures) of the quantiles over many ranks, of each column on its own."""
    for what, q in QUANTILES.items():
        yield what, {key: None if any(row[key] is None for row in ranks.values())
                     else float(np.quantile([row[key] for row in ranks.values()], q))
                     for key in COLUMNS + ["last_share"]}


def table(figures):
    factor, name = rows.unit([row[key] for _, ranks in figures for row in ranks.values()
                              for key in COLUMNS])
    lines = []
    for cell, ranks in figures:
        few = len(ranks) <= MOST_POINTS
        of_ranks = [(str(rank), row) for rank, row in ranks.items()] if few else \
            [(f"{what} of {len(ranks)}", row) for what, row in quantile_rows(ranks)]
        for what, row in of_ranks:
            lines.append([rows.label(cell), what]
                         + [rows.scaled(row[key], factor) for key in COLUMNS]
                         + [rows.scaled(row["last_share"], 100), said_of(cell, ranks)])
    return Table(["configuration", "rank"]
                 + [f"{title} ({name})" for title in ("computation", "waiting", "transfer",
                                                      "waited for")]
                 + ["last (% of exchanges)", "straggler"], lines)


def see(figures):
    late = [cell.label for cell, _ in figures if named(cell) is not None]
    some = [cell.label for cell, _ in figures if stragglers_of(cell)]
    if late:
        return f"Most runs name one rank that the others wait for: {rows.listed(late, len(figures))}."
    if some:
        return (f"Runs of {rows.listed(some, len(figures))} name a straggler, but most of a configuration's "
                "runs do not name the same one.")
    return f"{none_named(figures)} Points of a row that lie apart are uneven work."


def divided(cell):
    """What became of --partition, as text; None: the runs had none."""
    found = cell.figures(lambda run: run.info.get("data", {}).get("partition"))
    if not found:
        return None
    samples = [n for one in found for n in one["samples"]]
    return (f"{cell.label}: {min(samples)} to {max(samples)} samples a rank; a rank's labels lie "
            f"{np.median([one['mean_label_skew'] for one in found]):.3f} from those of all (total variation, mean over "
            "the ranks, median over the runs).")


def notes(figures):
    said = rows.capped([f"{cell.label}: the straggler is {said_of(cell, ranks)}." for cell, ranks in figures
                        if stragglers_of(cell)])
    if not said:
        said.append(none_named(figures))
    said += rows.capped([told for told in (divided(cell) for cell, _ in figures) if told])
    said += rows.noted(("Measured without phases (--profile off)", [
        cell.label for cell, ranks in figures
        if all(row["compute_s"] is None for row in ranks.values())]))
    if any(len(ranks) > MOST_POINTS for _, ranks in figures):
        said.append(f"More than {MOST_POINTS} ranks: the table has quantiles over the ranks, of "
                    "each column on its own, so a row is not one rank.")
    return said


def build(results):
    figures = [(cell, ranks_of(cell)) for cell in results.cells]
    several = [(cell, ranks) for cell, ranks in figures if len(ranks) > 1]
    if not several:
        raise NotShown("All runs had one rank.")
    if all(row["compute_s"] is None for _, ranks in several for row in ranks.values()):
        raise NotShown("No run measured what its ranks did: all had --profile off.")
    more = rows.noted(("One rank, and so not shown",
                       [cell.label for cell, ranks in figures if len(ranks) <= 1]))
    visible, left_out = rows.chosen(several, results.baseline)
    return Chart(TITLE, CAPTION, lambda fig: draw(fig, visible),
                 table(several), notes(several) + more
                 + rows.remarks([cell for cell, _ in several]) + left_out, see(several))
