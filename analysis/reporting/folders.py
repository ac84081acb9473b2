"""Which runs a folder on a command line stands for, with Python's own library only."""

import os

from reporting.shape import Bad


def runs_in(folder):
    """Paths of the runs in and below a folder, in order of their names; what is no finished run is ignored.
    The folder itself if it is one, or if there are none."""
    if os.path.lexists(os.path.join(folder, "run.json")):
        return [folder]
    found = []
    for path, folders, files in os.walk(folder):
        folders.sort()
        if "run.json" in files:
            found.append(path)
            folders.clear()
    return found or [folder]


def read_runs(paths, read):
    """([(folder, read(folder))] of the runs that these paths stand for, lines on what was left out). A path
    that is a run itself must be one that can be read; Bad otherwise."""
    found, left_out = [], []
    for path in paths:
        for folder in runs_in(path):
            try:
                found.append((folder, read(folder)))
            except Bad as error:
                if folder == path:
                    raise
                left_out.append(f"left out: {error}")
    if not found:
        raise Bad(left_out[0])
    return found, left_out
