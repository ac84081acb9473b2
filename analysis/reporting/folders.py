"""Which runs a folder on a command line stands for, with Python's own library only."""

import os
from collections import Counter

from . import ends
from .shape import EXPERIMENT, STUDY, Bad, check, load_json


def checked(folder, name, shape):
    """What a file of the runner's says; None: there is none, or it is damaged."""
    try:
        found = load_json(os.path.join(folder, name))
        check(found, shape, name)
    except Bad:
        return None
    return found


def lost_of(folder, files):
    """(folder, how it ended, why) of a run without figures; None: its run.json has some."""
    record = checked(folder, "experiment.json", EXPERIMENT)
    if record is not None and ends.of_record(record) != ends.DONE:
        return folder, ends.of_record(record), ends.described(record)
    return None if record or "run.json" in files else (folder, ends.UNFINISHED, ends.WITHOUT_RESULT)


def runs_in(folder):
    """(paths of the runs in and below a folder, in order of their names; [(path, how it ended, why)] of those
    without figures). The folder itself if it is a run, or if there are none."""
    if os.path.lexists(os.path.join(folder, "run.json")):
        return [folder], []
    found, lost = [], []
    for path, folders, files in os.walk(folder):
        folders.sort()
        study = checked(path, "study.json", STUDY) if "study.json" in files else None
        places = [os.path.join(path, run["folder"]) for run in study["runs"]] if study else []
        lost += [(place, ends.NOT_RUN, "no folder") for place in places if not os.path.lexists(place)]
        if {"run.json", "experiment.json", "batches.csv"} & set(files):
            gone = lost_of(path, files)
            (lost if gone else found).append(gone or path)
            folders.clear()
    return found or ([] if lost else [folder]), lost


def read_runs(paths, read):
    """([(folder, read(folder))] of the runs that these paths stand for; how all of them ended, "" where all are
    done; lines on those without figures). A path that is a run itself must be one that can be read; Bad
    otherwise."""
    found, lost = [], []
    for path in paths:
        folders, gone = runs_in(path)
        lost += gone
        for folder in folders:
            try:
                found.append((folder, read(folder)))
            except Bad as error:
                if folder == path:
                    raise
                lost.append((None, ends.LEFT_OUT, str(error)))
    counts = Counter(end for _, end, _ in lost)
    counts.update(ends.of_run(getattr(run, "info", run)) for _, run in found)
    lines = [": ".join(filter(None, one)) for one in lost]
    if not found:
        raise Bad(f"{paths[0]}: no finished run: {ends.counted(counts)}: {lines[0]}")
    return found, "" if set(counts) == {ends.DONE} else f"runs: {ends.counted(counts)}", lines
