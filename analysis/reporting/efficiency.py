"""How far runs are from what they could reach: POP's efficiencies, the roof, the forecast, and the energy of a step, as
columns of one table. Medians over the runs of a configuration that have the figure."""

from . import pop, rows, stats
from .info import look
from .model import Table

ROOF = ("operations a byte (modelled)", "Gflop/s a thread", "Gflop/s, 95% from", "Gflop/s, 95% to", "working set in",
        "roof there (Gflop/s a thread)", "share of the roof", "products alone (Gflop/s a thread)")
FORECAST = ("predicted step, modelled (ms)", "measured step (ms)", "predicted / measured", "ratio, 95% from",
            "ratio, 95% to")


def pop_of(cell):
    return {f"{title} (%)": rows.scaled(cell.middle(lambda run, name=name: run.means.get(f"pop_{name}")), 100)
            for name, title in pop.NAMES.items()}


def bytes_of(work):
    """Compulsory bytes of both passes: of products, and of kernels over their results."""
    return work["bytes"] + work["pointwise_bytes"]


def work_of(run):
    """The run's `work`; None: absent, nothing was timed, or what the model's own kernels move is not known."""
    work = run.info.get("work")
    known = work and work["flops_per_s"] and work["flops"] and work["pointwise_bytes"] is not None
    return work if known and bytes_of(work) else None


def roof_of(cell):
    """Forward and backward pass against the roof at the level of the caches that holds their working set."""
    known = [(run.info["machine"]["threads_per_rank"], work) for run in cell.runs if (work := work_of(run))]
    if not known:
        return dict.fromkeys(ROOF)
    threads, work = known[0]
    rate = stats.median_ci([one["flops_per_s"] / each for each, one in known])
    intensity, roofs = work["flops"] / bytes_of(work), (work["peak_flops_per_s"], work["bandwidth_bytes_per_s"])
    roof = None if None in roofs else min(roofs[0], intensity * roofs[1]) / threads
    alone = [product["flops"] / product["alone_s"] / threads * 1e-9 for product in work["products"]
             if product["alone_s"] and product["flops"] and product["bytes"]]
    return dict(zip(ROOF, (
        intensity, *rows.figures(rate, 1e-9), work["level"], rows.scaled(roof, 1e-9), rate.value / roof if roof else None,
        f"{min(alone):.3g} to {max(alone):.3g}" if alone else None)))


def forecast_of(cell):
    found = [(one.get("predicted_step_s"), one.get("measured_step_s")) for run in cell.runs
             if (one := run.info.get("forecast"))]
    known = [pair for pair in found if all(value is not None and value > 0 for value in pair)]
    if not known:
        return dict.fromkeys(FORECAST)
    predicted, measured = (stats.median_ci(side).value * 1e3 for side in zip(*known))
    return dict(zip(FORECAST, (predicted, measured, *rows.figures(stats.median_ci([p / m for p, m in known])))))


def energy_of(cell):
    return {"energy of a step (J)": cell.middle(lambda run: look(run.info, "results.energy.joules_per_step"))}


FAMILIES = (
    (pop_of, "Efficiencies are POP's, of the mean step, by what each rank does outside MPI: parallel is load balance times "
             "communication, and communication is serialisation times transfer."),
    (roof_of, "The roof (Williams, Waterman and Patterson, Roofline, Communications of the ACM 2009) is what the machine's "
              "measured ceilings allow forward and backward pass. Operations are those of the matrix products; bytes are "
              "modelled as compulsory (each operand read once, each result fetched and written), so the true traffic is "
              "larger if caches hold less than the step touches. Products alone were measured with operands in the caches."),
    (forecast_of, "The prediction was made at the start of the run from parts that it measured there."),
    (energy_of, "Energy is that of the processors of all nodes, by means over all steps."))


def table_of(results):
    """(Table, [what its columns are]); those that no run has are not there."""
    columns, lines, said = ["configuration"], [[rows.label(cell)] for cell in results.cells], []
    for of, what in FAMILIES:
        found = [of(cell) for cell in results.cells]
        names = [name for name in found[0] if any(one[name] is not None for one in found)]
        columns += names
        said += [what] * bool(names)
        for line, one in zip(lines, found):
            line += [one[name] for name in names]
    return Table(columns, lines), said
