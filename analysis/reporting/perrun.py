"""One row per run, of all that its folder says: for `gradwire export` and `gradwire report --paper`.
Seconds and bytes; blank: not measured. docs/analysis.md has the columns."""

from . import ends, sheet
from .info import look
from .loose import link_text
from .steps import DIMENSIONS


# Of results.
ENDS = ("validation_accuracy", "precision", "recall", "f1", "test_s", "test_samples_per_s", "test_forward_s")
BEST = ("epoch", "validation_loss", "validation_accuracy", "test_accuracy")
MEMORY, PHASES = ("peak_bytes", "peak_sum_bytes"), ("setup", "training", "evaluation", "total")


def of_results(results):
    """Rows {column: figure} of one study, or of the runs of none: the finished runs, then the others."""
    found = [row_of(results, cell, run) for cell in results.cells for run in cell.runs]
    cells = {cell.name: cell for cell in results.cells + results.empty}
    found += [{"study": results.name, "folder": one.folder, "state": one.end,
               **(levels_of(cells[one.cell]) if one.cell in cells else {"cell": one.cell}), "why": one.why}
              for one in results.lost]
    found += [{"study": results.name, "folder": folder, "state": ends.LEFT_OUT, "why": why}
              for folder, why in results.left_out]
    return found + [{"study": results.name, "folder": folder, "state": ends.NOT_RUN}
                    for folder in results.missing]


def levels_of(cell):
    return {"cell": cell.name, "label": cell.label, **{f"level.{name}": level for name, level in cell.levels.items()},
            "baseline": int(cell.baseline)}


def row_of(results, cell, run):
    info = run.info
    machine, result, link = info["machine"], info["results"], info["link"]
    return {
        "study": results.name, "folder": run.folder, "state": ends.of_run(info), **levels_of(cell),
        "block": run.block, "seed": info["seed"],
        "started_utc": info["started_utc"], "version": info["version"], "commit": info["commit"],
        "hosts": " ".join(sorted(set(machine["hosts"]))), "cpu": machine["cpu"],
        "cores": machine["cores_usable"], "ranks": machine["ranks"], "threads": machine["threads_per_rank"],
        "nodes": machine["nodes"],
        "oversubscribed": int(machine["oversubscribed"]),
        "mpi": " ".join(info["mpi"]["library"].split()), "link": link_text(link) if link else None,
        "strategy": info["comm"]["strategy"], "algorithm": info["comm"]["algorithm"],
        "codec": info["comm"]["codec"], "data": info.get("data", {}).get("source"),
        "data_hash": info.get("data", {}).get("hash"), "label_skew": look(info, "data.partition.mean_label_skew"),
        "parameters": info["parameters"],
        **mesh_of(info), "steps": result["steps"], "step_s": run.step_s, "bound_s": run.bound_s,
        **{f"step_{key}": value for key, value in (result["summary"].get("spread") or {}).items()},
        "halves_apart": (result["summary"].get("halves") or {}).get("apart"),
        "cpus_lacking": look(info, "machine.busy.during.lack"),
        "train_s": result["train_s"], "elapsed_s": result["elapsed_s"],
        "train_loss": result["train_loss"], "test_loss": result["test_loss"],
        "test_accuracy": result["test_accuracy"], **{key: result.get(key) for key in ENDS},
        **{f"best.{key}": (result.get("best") or {}).get(key) for key in BEST},
        **{f"{key}.{phase}": (result.get(key) or {}).get(phase) for key in MEMORY for phase in PHASES},
        "joules_per_step": look(info, "results.energy.joules_per_step"), "run_wire_bytes": result["wire_bytes"],
        **{f"mean.{name}": mean for name, mean in run.means.items()},
        **{f"source.{name}": text.partition(":")[0] for name, text in info["sources"].items()},
        "replica_hash": result.get("replica_hash"), "marks": "; ".join(run.marks),
        "command": info["command"],
    }


def mesh_of(info):
    """Columns of a run over a mesh; the bubble as measured, and simulated at the run's own pace."""
    mesh, results = info.get("mesh"), info["results"]
    if not mesh:
        return {}
    return {**{f"mesh.{key}": mesh[key] for key in (*DIMENSIONS, "timetable", "microbatches")},
            "bubble_s": results["summary"].get("bubble_s"),
            "bubble_simulated_s": (results.get("simulated") or {}).get("bubble_s")}


def of_all(all_results, trials=True):
    """The rows of all studies, and of the trials by which they chose options."""
    return [row for results in all_results for one in (results, results.trials if trials else None) if one
            for row in of_results(one)]


def columns_of(rows):
    """In the order of the first row that has them; all levels after the label."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    levels = [name for name in names if name.startswith("level.")]
    others = [name for name in names if name not in levels]
    at = others.index("label" if "label" in others else "cell") + 1 if levels else 0
    return others[:at] + levels + others[at:]


def csv_text(rows):
    """The text of a CSV file; what is absent or not finite is blank."""
    return sheet.text_of(columns_of(rows), rows)
