"""Run folders as tables of pandas, and such tables as what the report works on."""

import os
from functools import lru_cache

import pandas

from gradwire.analysis.reporting import levels, perrun
from gradwire.analysis.reporting import batches as rows
from gradwire.analysis.reporting import runs as reading
from gradwire.analysis.reporting.base import BadInput

FILES = ("run.json", "batches.csv", "epochs.csv", "experiment.json")


def runs(*folders):
    """A DataFrame of all runs below these folders, a row each: the columns of `gradwire export` and `path`, the run's
    folder. Also those that failed or cannot be read: `state` and `why` say so."""
    if not folders:
        raise BadInput("runs(): name a folder of runs")
    tables = [_table(os.path.abspath(folder)) for folder in folders]
    return pandas.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]


def _table(root):
    rows = perrun.of_all(_read(root, _stamps(_found(root))))
    for row in rows:
        row["path"] = os.path.normpath(os.path.join(root, row["folder"]))
    return pandas.DataFrame(rows, columns=perrun.columns_of(rows))


def batches(run, warm_up=True):
    """The batches.csv of a run, a folder or a row of runs(): a row a rank and step. warm_up=False: without the first
    steps, which are in no figure of a report."""
    table = rows.table_of(os.path.join(_path(run), "batches.csv"))
    first = 0 if warm_up else rows.warm_up(int(table["step"].max()))
    return table[table["step"] > first].reset_index(drop=True)


def epochs(run):
    """The epochs.csv of a run, a folder or a row of runs(): a row an epoch."""
    return pandas.DataFrame(reading.read_epochs(os.path.join(_path(run), "epochs.csv")))


def _path(run):
    """The folder of one run."""
    if isinstance(run, (str, os.PathLike)):
        return os.fspath(run)
    if isinstance(run, pandas.DataFrame) and len(run) == 1:
        run = run.iloc[0]
    if not isinstance(run, pandas.Series) or not isinstance(run.get("path"), str):
        raise BadInput(f"one run is a folder or a row of runs(), not {_said(run)}")
    return run["path"]


def _said(given):
    size = f" of {len(given)} rows" if isinstance(given, pandas.DataFrame) else ""
    return f"a {type(given).__name__}{size}"


def results(given, baseline=None):
    """[Results] of a folder, a table of runs(), or rows of one."""
    if isinstance(given, (str, os.PathLike)):
        root = os.path.abspath(given)
        chosen = {root: _found(root)}
    elif isinstance(given, pandas.DataFrame) and {"path", "folder"} <= set(given.columns):
        if given.empty:
            raise BadInput("no run: the table is empty")
        chosen = {}
        for path, folder in zip(given["path"], given["folder"]):
            root = path if folder == "." else path.removesuffix(f"{os.sep}{folder}")
            chosen.setdefault(root, []).append(path)
    else:
        raise BadInput(f"runs are a folder, a table of runs() or rows of one, not {_said(given)}")
    found = [one for root, paths in chosen.items() for one in _read(root, _stamps(paths), baseline)]
    return [one for results in found for one in (results, results.trials) if one and (one.cells or one.lost)]


def _found(root):
    """The paths of all runs below a folder."""
    return [os.path.normpath(one.path) for one in reading.find(root)[1]]


def _stamps(paths):
    """(path, when its files last changed) of each: what is cached is of these."""
    def changed(path):
        try:
            return os.stat(path).st_mtime_ns
        except OSError:
            return None
    return tuple((path, *(changed(os.path.join(path, name)) for name in FILES)) for path in sorted(set(paths)))


@lru_cache(maxsize=8)
def _read(root, stamps, baseline=None):
    """The Results of these runs: read once, since a chart after another is drawn of them."""
    found = reading.read_results(root, {path for path, *_ in stamps})
    if not found:
        raise BadInput(f"{root}: no run of gradwire in it or below: name a folder that `gradwire train --out` or "
                       "`gradwire run` has written")
    if baseline is not None:
        levels.set_baseline(found, baseline)
    return found
