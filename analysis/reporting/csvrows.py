"""The rows of an open batches.csv, with Python's own library only."""

import math

from .shape import Bad
from .base import plain

MOST_COLUMNS = 500  # hardware counters have a column each
LINE = 1 << 16
KEYS = ("rank", "step", "wall_s")
NAN = math.nan


def columns_of(file, needed=KEYS):
    """The titles of an open batches.csv."""
    line = file.readline(LINE)
    if not line.endswith(b"\n"):
        raise Bad("batches.csv, line 1: ends early: half-written, or not a table" if line else
                  "batches.csv: empty: no titles, no rows")
    names = line.decode("utf-8", "replace").rstrip("\r\n").split(",")
    lacking = [name for name in needed if name not in names]
    if lacking or len(set(names)) < len(names) or len(names) > MOST_COLUMNS:
        raise Bad(f"batches.csv: no column {lacking[0]}" if lacking
                  else "batches.csv: a column twice, or too many")
    return names


def rows_of(file, columns, needed=KEYS):
    """(number of the line, {column: number}) of each row. NaN: blank, or the file has no such column."""
    titles = columns_of(file, needed)
    places = [(name, titles.index(name)) for name in columns if name in titles]
    absent = dict.fromkeys(columns, NAN)
    at = 1
    while line := file.readline(LINE):
        at += 1
        fields = line.split(b",")
        if not line.endswith(b"\n"):
            raise Bad(f"batches.csv, line {at}: ends early: half-written, or not a run's table")
        if len(fields) != len(titles):
            raise Bad(f"batches.csv, line {at}: {len(fields)} fields under {len(titles)} columns")
        fields[-1] = fields[-1].rstrip()
        row = absent.copy()
        for name, i in places:
            if fields[i]:
                row[name] = number_of(fields[i], name, at)
        yield at, row


def number_of(text, name, at):
    try:
        value = float(text)
    except ValueError:
        value = NAN
    if not math.isfinite(value):
        text = plain(text[:40].decode("utf-8", "replace"))
        raise Bad(f"batches.csv, line {at}, {name}: '{text}' is not a number")
    return value
