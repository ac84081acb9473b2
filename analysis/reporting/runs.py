"""Run folders in, model.Results out. Whatever cannot be read is listed with its reason, and the
rest is read without it. shape.py checks what the files hold before anything uses it."""

import csv
import io
import math
import os
from dataclasses import dataclass

import numpy as np
import pandas

from . import claims, ends, loose, pop, shape, steps
from .batches import read_batches
from .info import (MARK_BUSY, busy, link_warned, resumed, uncompressed, unlike,
                            unsettled)
from .levels import make_labels, varying
from .model import Cell, Lost, Results, Run
from .racks import uplink_bytes
from .shape import Bad, printable

INTERRUPTED = 0.1  # share of the batches from which on a run is marked
MARK_INTERRUPTED = f"more than {INTERRUPTED:.0%} of the batches interrupted"
MARK_UNSETTLED = "unsettled step time: halves of the steps disagree on it by more than 10%"
MARK_LINK = "the emulated link took so much of the cores that overlap looks worse"
MARK_PLAIN = "step time: a plain mean of few periods, or of work that never repeats; disturbed steps count"
MARK_RESUMED = "resumed after an early end"

EPOCHS_LIMIT = 64 << 20
LEAST, MOST = 1e-18, 1e18  # no time, count of bytes or useful loss lies beyond


@dataclass
class Found:
    """A folder that is a run, or was to become one."""

    path: str
    name: str  # relative to the folder of the report, fit to be shown
    study: str | None  # path of the study that it lies in


def find(folder):
    """(paths of studies, Found runs, left out): all below `folder`, in order of their names."""
    studies, runs, left_out, stack = [], [], [], [(folder, None)]
    while stack:
        path, study = stack.pop()
        name = printable(os.path.relpath(path, folder))
        try:
            with os.scandir(path) as entries:
                entries = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            left_out.append((name, error.strerror))
            continue
        files = {entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)}
        if "study.json" in files:
            studies.append(path)
            study = path
        if files & {"run.json", "experiment.json", "batches.csv"}:
            runs.append(Found(path, name, study))
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                stack.append((entry.path, study))
            elif entry.is_symlink() and os.path.isdir(entry.path):  # entry.is_dir() raises for links in a circle
                left_out.append((printable(os.path.relpath(entry.path, folder)),
                                 "a link to a folder: not followed"))
    return studies, runs, left_out


def read_epochs(path):
    """Rows of epochs.csv or evaluations.csv as {column: number or None}, without the hash of the
    replicas. NaN, infinities and what no run could count or time are not figures."""
    name = os.path.basename(path)
    with shape.open_regular(path) as file:
        text = file.read(EPOCHS_LIMIT + 1)
    if len(text) > EPOCHS_LIMIT:
        raise Bad(f"{name}: too long")
    titles, *lines = text.splitlines() or [b""]
    for at, line in enumerate(lines, 2):
        if line.count(b",") > titles.count(b","):  # pandas would shift the columns
            raise Bad(f"{name}, line {at}: more fields than the {titles.count(b',') + 1} columns")
    try:
        rows = pandas.read_csv(io.BytesIO(text), dtype=str, quoting=csv.QUOTE_NONE,
                               usecols=lambda name: name != "replica_hash")
    except ValueError as error:  # the parser's errors are ValueErrors
        raise Bad(f"{name}: {str(error).splitlines()[0]}") from error
    records = rows.apply(pandas.to_numeric, errors="coerce").to_dict("records")
    records = [{title: figure if figure == 0 or LEAST <= abs(figure) <= MOST else None
                for title, figure in record.items()} for record in records]
    for accuracy in ("test_accuracy", "validation_accuracy"):
        if not all(0 <= (record.get(accuracy) or 0) <= 1 for record in records):
            raise Bad(f"{name}: a {accuracy} outside 0 to 1")
    return records


def marks_of(info):
    """Warnings that apply to all of a run's figures. Single modelled figures are in info["sources"]."""
    marks = []
    if info["machine"]["oversubscribed"]:
        marks.append("oversubscribed")
    marks += map(": ".join, unlike(info))
    if info["link"]:
        marks.append("emulated link")
        if link_warned(info):
            marks.append(MARK_LINK)
    if busy(info):
        marks.append(MARK_BUSY)
    if unsettled(info):
        marks.append(MARK_UNSETTLED)
    if steps.statistic(info) == steps.PLAIN:
        marks.append(MARK_PLAIN)
    if resumed(info):
        marks.append(MARK_RESUMED)
    if ends.of_run(info) == ends.INTERRUPTED:
        marks.append(f"interrupted by {info['results']['stopped_by']}")
    if (info.get("ceilings") or {}).get("drifted"):
        marks.append("the machine's speed changed during the run")
    if (steps.interrupted(info) or 0) > INTERRUPTED:
        marks.append(MARK_INTERRUPTED)
    return marks


def read_run(found, experiment=None):
    """A finished run; its levels and cell are set where it was made by the runner."""
    info = shape.read_json(os.path.join(found.path, "run.json"), shape.RUN_SCHEMA, shape.RUN)
    played = (info.get("simulated") or {}).get("rows_of_ranks")  # the first steps of a played run count in no figure
    steps_left_out = int(info["results"]["steps"] - info["results"]["summary"]["batches"]) if played else None
    batches = read_batches(os.path.join(found.path, "batches.csv"), played or info["machine"]["ranks"],
                           info["results"]["steps"], steps_left_out)
    epochs = read_epochs(os.path.join(found.path, "epochs.csv"))
    more = os.path.join(found.path, "evaluations.csv")
    evaluations = read_epochs(more) if os.path.lexists(more) else []
    step_s = info["results"]["summary"]["wall_s"]
    if why := steps.absent(info):
        raise Bad(why)
    for file, seconds in (("batches.csv: a median step", np.median(batches.walls)),
                          ("run.json: a step", step_s)):
        if seconds is None or not LEAST <= seconds <= MOST:
            raise Bad(f"{file} of {seconds} s: no run takes that")
    means = {**batches.means, **steps.means_of(info), "slowest_wall_s": float(batches.walls.mean())}
    if (across := uplink_bytes(found.path, info)) is not None:
        means["uplink_bytes"] = across
    means.update({f"pop_{name}": None if math.isnan(share) else share
                  for name, share in pop.efficiencies(info, found.path)[0].items()})
    made = experiment or {"levels": {}, "cell": "", "block": None}
    return Run(folder=found.name, info=info, experiment=experiment, levels=made["levels"],
               cell=made["cell"], block=None if made["block"] is None else str(made["block"]),
               walls=batches.walls, means=means, present=batches.present, epochs=epochs,
               evaluations=evaluations, step_s=step_s, marks=marks_of(info),
               interrupted=steps.interrupted(info))


# ---- a study of the runner ----

class Study:
    """Gathers the runs of one study.json."""

    def __init__(self, path, root):
        self.path, self.root = path, root
        self.study = shape.read_json(os.path.join(path, "study.json"), shape.STUDY_SCHEMA,
                                     shape.STUDY)
        self.cells = {cell["id"]: cell["levels"] for cell in self.study["cells"]}
        if len(self.cells) < len(self.study["cells"]):
            raise Bad("study.json: a cell twice")
        for claim in self.study.get("claims", ()):
            if wrong := claims.fault(claim):
                raise Bad(f"study.json: claims: {': '.join(wrong)}")
        self.done, self.left_out, self.lost, self.seen = [], [], [], {}

    def add(self, found):
        try:
            self.place(found)
        except Bad as error:
            self.left_out.append((found.name, str(error)))

    def place(self, found):
        experiment = shape.read_json(os.path.join(found.path, "experiment.json"),
                                     shape.EXPERIMENT_SCHEMA, shape.EXPERIMENT)
        cell, turn = experiment["cell"], (experiment["cell"], experiment["block"])
        if experiment["study"] != self.study["name"] or \
                self.cells.get(cell) != experiment["levels"]:
            raise Bad("experiment.json: of another study than study.json")
        if turn in self.seen:
            raise Bad(f"the same cell and block as {self.seen[turn]}")
        self.seen[turn] = found.name
        end = ends.of_record(experiment)
        if end == ends.DONE:
            self.done.append(read_run(found, experiment))
        else:
            self.lost.append(Lost(end, found.name, cell, ends.described(experiment), experiment["seed"]))

    def missing(self):
        planned = ((run["cell"], run["block"], run["folder"]) for run in self.study["runs"])
        return [folder for cell, block, folder in planned if (cell, block) not in self.seen]

    def results(self):
        factors = {name: list(levels) for name, levels in self.study["factors"].items()}
        self.done.sort(key=lambda run: run.experiment["planned"])
        around = self.cells.get(self.study["baseline"]) \
            if self.study["design"] == "one-at-a-time" else None
        labels = make_labels(self.cells, factors, around)
        cells = [cell_of(name, labels[name], levels, [run for run in self.done if run.cell == name],
                         name == self.study["baseline"]) for name, levels in self.cells.items()]
        empty = [cell for cell in cells if not cell.runs]
        cells = [cell for cell in cells if cell.runs]
        return Results(self.study["name"], printable(os.path.relpath(self.path, self.root)),
                       self.study, factors, cells,
                       next((cell for cell in cells if cell.baseline), None), self.left_out,
                       self.lost, self.missing(), empty)


def cell_of(name, label, levels, members, baseline=False):
    """A Cell; its label tells if the runs did not compress although they were to."""
    not_so = [words for words in (uncompressed(run.info) for run in members) if words]
    if 0 < len(not_so) < len(members):
        not_so[0] = f"{not_so[0][:-1]} in {len(not_so)} of {len(members)} runs)"
    return Cell(name, label + "".join(not_so[:1]), levels, members, baseline)


# ---- runs of no study ----

def loose_results(folder, found, left_out):
    """[Results] of the runs outside studies, one for each kind of work: see loose.groups(). What has no figures is with
    the only one, or by itself; [] if there is nothing."""
    runs, lost = [], []
    for one in found:
        if not os.path.lexists(os.path.join(one.path, "run.json")):
            lost.append(Lost(ends.UNFINISHED, one.name, "", ends.WITHOUT_RESULT))
            continue
        try:
            runs.append(read_run(one))
        except Bad as error:
            left_out.append((one.name, str(error)))
    runs.sort(key=lambda run: (run.info["started_utc"], run.folder))
    loose.assign_levels(runs)
    name = printable(os.path.basename(os.path.abspath(folder))) or "runs"
    names, groups = loose.names_of(runs, name), loose.groups([run.info for run in runs])
    made = [loose_group(": ".join(filter(None, (name, label))), [runs[i] for i in places], names)
            for label, places in groups.items()]
    if len(made) != 1 and (left_out or lost):
        made.insert(0, Results(f"{name}: without figures" if made else name, ".", None, {}, [], None, [], []))
    for one in made[:1]:
        one.left_out, one.lost = left_out, lost
    return made


def loose_group(name, runs, names):
    """Results of runs that do the same work; names: {cell: what its runs are called}, {}: by their levels."""
    of_cell = {}
    for run in runs:
        of_cell.setdefault(run.cell, []).append(run)
    factors = varying([run.levels for run in runs])
    labels = names or (make_labels({cell: members[0].levels for cell, members in of_cell.items()}, factors)
                       if factors else dict.fromkeys(of_cell, runs[0].info["comm"]["strategy"]))
    cells = [cell_of(cell, labels[cell], members[0].levels, members) for cell, members in of_cell.items()]
    return Results(name, ".", None, factors, cells, None, [], [])


def read_results(folder, only=None):
    """A Results per study found in `folder` or below, then one per kind of work of the runs outside studies. The trials by which a
    study chose options are its own, not one beside it. only: paths of the runs that count; None: all. Raises Bad if the
    folder cannot be read."""
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise Bad(f"{folder}: {error.strerror}") from error
    paths, found, left_out = find(folder)
    studies, loose_runs = {}, []
    for path in sorted(paths):
        try:
            studies[path] = Study(path, folder)
        except Bad as error:
            left_out.append((printable(os.path.relpath(path, folder)),
                             f"{error}; its runs are shown as runs of no study"))
    for one in found:
        if only is not None and one.path not in only:
            continue
        if one.study in studies:
            studies[one.study].add(one)
        else:
            loose_runs.append(one)
    by_path = {os.path.normpath(path): study.results() for path, study in studies.items()}
    for path in [path for path, one in by_path.items() if one.study.get("trials")]:
        if parent := by_path.get(os.path.normpath(os.path.dirname(path))):
            parent.trials = by_path.pop(path)
    results = list(by_path.values())
    return results + loose_results(folder, loose_runs, left_out)


def read_some(folder):
    """read_results(); BadInput if there are none."""
    found = read_results(folder)
    if not found:
        raise Bad(f"{folder}: no run of gradwire in it or below: name a folder that "
                  "`gradwire train --out` or experiments/run has written")
    return found
