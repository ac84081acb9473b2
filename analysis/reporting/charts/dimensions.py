"""What runs over a mesh exchange along each of its dimensions, and the bubble."""

from .. import figure, rows
from ..model import Chart, NotShown, Table
from ..steps import DIMENSIONS

TITLE = "Communication along the dimensions of a mesh"

CAPTION = (
    "What a rank exchanges with the others along a dimension: time in the codec and in MPI (posting, "
    "polling, waiting), and of it waiting for a rank that came later, both means over the ranks and the "
    "steps of the step time; and bytes handed to MPI. Of several runs medians. Along the pipe waiting is "
    "the bubble. Runs without a mesh exchange gradients alone, along data. The table has the bubble as a "
    "share of the step, measured, and simulated at the medians of the run's own actions and hops: that is "
    "what its timetable leaves, without interruptions and with steps that are all alike.")

COLOURS = dict(zip(DIMENSIONS, figure.SERIES))
WHOLE = ("encode_s", "decode_s", "mpi_post_s", "mpi_poll_s", "mpi_wait_s")
FIGURES = [("comm_s", "communication"), ("skew_s", "waiting"), ("bytes", "bytes")]


def of_run(run, dim, what):
    """None: not measured, or no such dimension."""
    mesh = run.info.get("mesh")
    if mesh is not None and f"{dim}_{what}" in run.means:
        return run.means[f"{dim}_{what}"] if mesh[dim] > 1 else None
    if dim != "data":
        return None
    columns = {"comm_s": WHOLE, "skew_s": ("wait_skew_s",), "bytes": ("wire_bytes",)}[what]
    values = [run.means.get(column) for column in columns]
    return None if None in values else sum(values)


def of_cell(cell):
    """{(dimension, figure): median over the runs, or None}."""
    return {(dim, what): cell.middle(lambda run, dim=dim, what=what: of_run(run, dim, what))
            for dim in DIMENSIONS for what, _ in FIGURES}


def bubble(cell, which):
    """The median share of the step over the runs, of "summary" or "simulated"; None: absent."""
    return cell.middle(lambda run: (run.info["results"].get(which) or {}).get("bubble_share"))


def mesh_of(cell):
    mesh = cell.runs[0].info.get("mesh")
    return " x ".join(f"{dim} {mesh[dim]}" for dim in DIMENSIONS) if mesh else "none"


def units(figures):
    """(factor, unit) of each of FIGURES."""
    def of(what):
        return [sum(one[dim, what] or 0 for dim in DIMENSIONS) for _, one in figures]
    time = rows.unit(of("comm_s"))
    return {"comm_s": time, "skew_s": time, "bytes": rows.bytes_unit(of("bytes"))}


def draw(fig, figures):
    unit = units(figures)
    used = [dim for dim in DIMENSIONS if any(one[dim, "comm_s"] is not None for _, one in figures)]
    grid = rows.Rows(fig, [rows.row_label(cell) for cell, _ in figures],
                     [f"{title} ({unit[what][1]})" for what, title in FIGURES],
                     [figure.patch(f"along {dim}", COLOURS[dim]) for dim in used])
    for ax, (what, _) in zip(grid.axes, FIGURES):
        for i, (_, one) in enumerate(figures):
            left = 0.0
            for dim in used:
                value = (one[dim, what] or 0.0) * unit[what][0]
                ax.barh(grid.at(i), value, rows.THICK, left=left, facecolor=COLOURS[dim], linewidth=0)
                left += value
            if all(one[dim, what] is None for dim in used):
                grid.absent(ax, i)
        ax.set_xlim(left=0)


def table(figures):
    unit = units(figures)
    return Table(
        ["configuration", "runs", "mesh",
         *(f"{title} along {dim} ({unit[what][1]})" for dim in DIMENSIONS for what, title in FIGURES),
         "bubble (% of the step)", "bubble, simulated (% of its step)"],
        [[rows.label(cell), len(cell.runs), mesh_of(cell),
          *(rows.scaled(one[dim, what], unit[what][0]) for dim in DIMENSIONS for what, _ in FIGURES),
          *(rows.scaled(bubble(cell, which), 100) for which in ("summary", "simulated"))]
         for cell, one in figures])


def see(figures):
    shares = [(bubble(cell, "summary"), cell.label) for cell, _ in figures]
    found = sorted((share, label) for share, label in shares if share is not None)
    if not found:
        return "No run has several stages: there is no bubble."
    (low, first), (high, last) = found[0], found[-1]
    if len(found) == 1:
        return f"Stages wait for one another for {high:.0%} of a step."
    return f"Stages wait for one another for {low:.0%} ({first}) to {high:.0%} ({last}) of a step."


def build(results):
    if not any(run.info.get("mesh") and "data_comm_s" in run.means for run in results.runs):
        raise NotShown("No run has pipe or tensor in its mesh.")
    figures = [(cell, of_cell(cell)) for cell in results.cells]
    visible, left_out = rows.chosen(figures, results.baseline)
    return Chart(TITLE, CAPTION, lambda fig: draw(fig, visible), table(figures),
                 rows.remarks(results.cells) + rows.repetitions(results.cells) + left_out,
                 see(figures))
