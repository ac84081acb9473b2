"""Resident memory: of the rank that takes most, phase by phase, and of all ranks together."""

from .. import figure, panels, rows
from ..model import Chart, NotShown, Table

TITLE = "Memory"
PHASES = {"setup": figure.SERIES[4], "training": figure.SERIES[0], "evaluation": figure.SERIES[1]}
UNIT = 2.0**-20  # MiB

CAPTION = (
    "Resident memory at its most, measured (VmHWM), median over the runs of a configuration. Left: of "
    "the rank that takes most, in each phase: set-up (with the limits of the machine, where a run "
    "measures them), training, evaluation. Right: of all ranks together, over all phases; shared "
    "memory, the program and its libraries count once a node. docs/measurement.md has the errors.")


def size(cell, key, phase):
    """Median bytes of a phase; None: not measured."""
    return cell.middle(lambda run: (run.info["results"].get(key) or {}).get(phase))


def table_of(cells):
    lines = []
    for cell in cells:
        sizes = [size(cell, "peak_bytes", phase) for phase in (*PHASES, "total")]
        sizes += [size(cell, "peak_sum_bytes", phase) for phase in ("training", "total")]
        machine = cell.runs[0].info["machine"]
        lines.append([rows.label(cell), machine["ranks"], machine["threads_per_rank"]]
                     + [rows.scaled(one, UNIT) for one in sizes])
    return Table(["configuration", "ranks", "threads a rank", *(f"{phase} (MiB a rank)" for phase in PHASES),
                  "at most (MiB a rank)", "training, all ranks (MiB)", "at most, all ranks (MiB)"], lines)


def draw(fig, cells):
    """One row per configuration."""
    entries = [figure.dot(phase, colour) for phase, colour in PHASES.items()]
    grid = rows.Rows(fig, [rows.label(cell) for cell in cells],
                     ["a rank, at most (MiB)", "all ranks (MiB)"], entries)
    for i, cell in enumerate(cells):
        y, everyone = grid.at(i), size(cell, "peak_sum_bytes", "total")
        known = [(colour, size(cell, "peak_bytes", phase)) for phase, colour in PHASES.items()]
        for colour, one in known:
            if one is not None:
                grid.axes[0].plot(one * UNIT, y, "o", color=colour, markersize=5, clip_on=False,
                                  markeredgecolor=figure.GROUND, markeredgewidth=0.4, zorder=4)
        if all(one is None for _, one in known):
            grid.absent(grid.axes[0], i)
        if everyone is None:
            grid.absent(grid.axes[1], i)
        else:
            grid.axes[1].barh(y, everyone * UNIT, rows.THICK, color=figure.SERIES[0], linewidth=0)
            panels.figure_at(grid.axes[1], everyone * UNIT, y, f"{everyone * UNIT:.4g}")
    for ax in grid.axes:
        ax.set_xlim(0, ax.get_xlim()[1] * 1.15)
        panels.few_ticks(ax.xaxis, 4)


def see(cells):
    known = [(size(cell, "peak_sum_bytes", "total"), cell.label) for cell in cells
             if size(cell, "peak_sum_bytes", "total") is not None]
    if not known:
        return "What all ranks take together was not measured."
    (least, first), (most, last) = min(known), max(known)
    if len(known) == 1:
        return f"All ranks together take {most * UNIT:.4g} MiB."
    return (f"The least median over all ranks is {first}'s, {least * UNIT:.4g} MiB; the largest {last}'s, "
            f"{most * UNIT:.4g} MiB (no test compares them).")


def build(results):
    cells = [cell for cell in results.cells if size(cell, "peak_bytes", "total") is not None]
    if not cells:
        raise NotShown("No run measured its memory.")
    visible, notes = rows.chosen(cells, results.baseline)
    notes += rows.noted(("Not measured",
                         [cell.label for cell in results.cells if cell not in cells]),
                        ("Phases cannot be told apart on this system (sources.peak_bytes of run.json)",
                         [cell.label for cell in cells if size(cell, "peak_bytes", "training") is None]))
    return Chart(TITLE, CAPTION, lambda fig: draw(fig, visible), table_of(cells),
                 notes + rows.repetitions(cells) + rows.remarks(cells), see(cells))
