"""summary.csv: one row per configuration, for spreadsheets and scripts. Seconds and bytes; blank:
not measured. docs/analysis.md has the columns."""

from statistics import fmean

from . import ends, learning, stats, verdicts
from .charts import memory
from .perrun import ENDS, MEMORY, PHASES, csv_text
from .steps import DIMENSIONS

# Of each run the mean over ranks and the steps of its step time, then the mean over the runs, so that
# phases add up.
MEANS = ["wall_s", "data_s", "forward_s", "backward_s", "recompute_s", "update_s", "encode_s",
         "decode_s", "mpi_post_s", "mpi_poll_s", "mpi_wait_s", "checkpoint_s", "other_s", "memory_ctr_s",
         "memory_twin_s", "memory_model_lo_s", "memory_model_hi_s", "transfer_s", "logical_bytes",
         "wire_bytes", "messages", "collectives"]
# Of runs over a mesh; the bubble is pipe_skew_s.
BY_DIMENSION = [f"{dim}_{what}" for dim in DIMENSIONS
                for what in ("comm_s", "skew_s", "bytes", "messages")]
OF_RACKS = ["uplink_bytes"]  # of runs over racks
SUMS = {"compute_s": ("forward_s", "backward_s", "recompute_s", "update_s"),
        "exposed_s": ("mpi_post_s", "mpi_poll_s", "mpi_wait_s"),
        "codec_s": ("encode_s", "decode_s"),
        "waiting_s": ("wait_skew_s",), "hidden_s": ("inflight_s",)}


def mean_of(runs, columns):
    """None if a run lacks one of them."""
    values = [run.means.get(column) for run in runs for column in columns]
    return None if None in values else fmean(values) * len(columns)


def one(values):
    """The value of all; several are separated by slashes."""
    return " / ".join(dict.fromkeys(str(value) for value in values))


def timing(cell):
    interval = stats.median_ci([run.step_s for run in cell.runs])
    return {"statistic": one(run.statistic for run in cell.runs), "step_s": interval.value, "step_low_s": interval.low, "step_high_s": interval.high,
            "step_interval": interval.method,
            "bound_s": cell.middle(lambda run: run.bound_s),
            "of_bound": cell.middle(lambda run: run.of_bound)}


def phases(cell):
    row = {column: mean_of(cell.runs, [column]) for column in MEANS}
    row.update({name: mean_of(cell.runs, columns) for name, columns in SUMS.items()})
    for columns in (BY_DIMENSION, OF_RACKS):
        if any(column in run.means for run in cell.runs for column in columns):
            row.update({column: mean_of(cell.runs, [column]) for column in columns})
    return {"wall_mean_s": row.pop("wall_s"), **row}


def outcome(cell):
    accuracy = stats.median_ci(stats.by_seed(
        (run.info["seed"], run.info["results"]["test_accuracy"]) for run in cell.runs).values())
    return {"test_accuracy": accuracy.value, "test_accuracy_low": accuracy.low,
            "test_accuracy_high": accuracy.high,
            **{key: cell.middle(lambda run, key=key: run.info["results"].get(key)) for key in ENDS},
            "best_epoch": cell.middle(learning.best_epoch),
            **{f"{key}.{phase}": memory.size(cell, key, phase) for key in MEMORY for phase in PHASES},
            "train_s": cell.middle(lambda run: run.info["results"]["train_s"]),
            "run_wire_bytes": cell.middle(lambda run: run.info["results"]["wire_bytes"]),
            "wire_source": one(run.info["sources"]["wire_bytes"].partition(":")[0]
                               for run in cell.runs),
            "memory_source": one(run.info["sources"]["memory_s"].partition(":")[0]
                                 for run in cell.runs)}


def comparison(found, reference):
    """Columns of a Comparison with a cell; None: the cell is the baseline, or there is none."""
    columns = ("compared_with", "ratio", "ratio_low", "ratio_high", "ratio_level", "p", "p_holm",
               "least_difference", "verdict")
    if found is None:
        return dict.fromkeys(columns)
    interval = found.interval
    return dict(zip(columns, (reference.name, interval.value, interval.low, interval.high,
                              interval.level, found.p, found.p_adjusted, found.mdd, found.text)))


def identity(results, cell):
    """Columns that a cell without a finished run has, too."""
    return {"study": results.name, "cell": cell.name, "label": cell.label,
            **{f"level.{name}": level for name, level in cell.levels.items()},
            "baseline": int(cell.baseline), "runs": len(cell.runs),
            **{end: sum(one.cell == cell.name for one in results.ended(end)) for end in ends.LOST}}


def rows_of(results):
    found, references = verdicts.compared(results), verdicts.references(results)
    for cell in results.cells:
        machines = [run.info["machine"] for run in cell.runs]
        yield {**identity(results, cell),
               "ranks": one(machine["ranks"] for machine in machines),
               "threads": one(machine["threads_per_rank"] for machine in machines),
               **timing(cell), **phases(cell), **outcome(cell),
               **comparison(found.get(cell.name), references.get(cell.name)),
               "marks": "; ".join(cell.marks),
               "date": one(sorted({run.info["started_utc"][:10] for run in cell.runs})),
               "cpu": one(machine["cpu"] for machine in machines),
               "cores": one(machine["cores_usable"] for machine in machines)}
    for cell in results.empty:
        yield identity(results, cell)


def text(all_results):
    """The file of all studies, with a column for each factor of any of them after the label."""
    return csv_text([row for results in all_results for row in rows_of(results)])
