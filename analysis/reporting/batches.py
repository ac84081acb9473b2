"""Reads batches.csv in pieces: however long the file is, memory holds one piece, one number per step
and sums per rank.

Warm-up: of a run of more than 20 steps the first 10 are left out, as in run.json's own summary
(docs/measurement.md)."""

import os
from dataclasses import dataclass

import numpy as np
import pandas

from .csvrows import columns_of
from .shape import Bad, open_regular

WARM_UP, MORE_THAN = 10, 20
WARM_UP_RULE = (f"The first {WARM_UP} steps of a run of more than {MORE_THAN} are in no figure; "
                "shorter runs count in full.")
PIECE_ROWS = 50_000
NO_MEAN = {"rank", "epoch", "step", "t_start_s", "source", "replica", "stage", "shard"}


@dataclass
class Batches:
    walls: object  # numpy array: the longest wall of each step
    means: dict  # column -> mean over the rows after warm-up that are not blank; None: all blank
    present: dict  # column -> share of the rows that are not blank


def warm_up(steps):
    return WARM_UP if steps > MORE_THAN else 0


class Sums:
    """Of each column, over the rows after warm-up."""

    def __init__(self, ranks, steps, columns, left_out):
        self.ranks, self.steps, self.columns, self.left_out = ranks, steps, columns, left_out
        self.walls, self.rows = np.zeros(steps), np.zeros(ranks, dtype=np.int64)
        self.total = self.known = pandas.Series(0.0, columns)

    def add(self, piece):
        for name, low, high in (("rank", 0, self.ranks - 1), ("step", 1, self.steps)):
            if not piece[name].between(low, high).all():
                raise Bad(f"batches.csv: a {name} outside {low} to {high}, the range in run.json")
        wall = piece["wall_s"].to_numpy()
        if not np.all(np.isfinite(wall) & (wall >= 0)):
            raise Bad("batches.csv: a wall_s that is not a time")
        rank, step = (piece[name].to_numpy().astype(np.int64) for name in ("rank", "step"))
        np.maximum.at(self.walls, step - 1, wall)
        self.rows += np.bincount(rank, minlength=self.ranks)
        finite = piece.loc[step > self.left_out, self.columns].replace([np.inf, -np.inf], np.nan)
        self.total, self.known = self.total + finite.sum(), self.known + finite.count()

    def finish(self):
        if np.any(self.rows != self.steps):
            raise Bad(f"batches.csv: {self.rows.sum()} rows, not the {self.steps} x {self.ranks} "
                      "of run.json: half written")
        rows = (self.steps - self.left_out) * self.ranks
        means = {name: self.total[name] / n if n else None for name, n in self.known.items()}
        return Batches(self.walls[self.left_out:], means, (self.known / rows).to_dict())


def pieces_of(file, names):
    """Tables of PIECE_ROWS rows of a batches.csv open behind its titles, one after another; raises Bad if they are
    none."""
    kinds = {**dict.fromkeys(names, float), "source": "category"}
    try:
        with pandas.read_csv(file, header=None, names=names, dtype=kinds, quoting=3,
                             chunksize=PIECE_ROWS) as pieces:
            for piece in pieces:
                if not isinstance(piece.index, pandas.RangeIndex):
                    raise Bad("batches.csv: rows longer than the line of titles")
                yield piece
    except (ValueError, OverflowError) as error:  # the parser's errors are ValueErrors
        raise Bad(f"batches.csv: {str(error).splitlines()[0]}") from error


def read_batches(path, ranks, steps, left_out=None):
    """The Batches of a run of so many ranks and steps, whose first `left_out` are in no figure (None: by the rule of
    warm-up); raises Bad if the file is not theirs."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # A row has more bytes than this, so what run.json claims cannot make us ask for memory.
        if ranks < 1 or steps < 1 or ranks * steps > size:
            raise Bad(f"batches.csv: too short for {steps} steps of {ranks} ranks: half written")
        if os.pread(file.fileno(), 1, size - 1) != b"\n":
            raise Bad("batches.csv: its last line has no end: half written")
        names = columns_of(file)
        columns = [name for name in names if name not in NO_MEAN]
        sums = Sums(ranks, steps, columns, warm_up(steps) if left_out is None else left_out)
        for piece in pieces_of(file, names):
            sums.add(piece)
    return sums.finish()


def table_of(path):
    """All rows of a batches.csv, as a DataFrame; a blank is NaN."""
    with open_regular(path) as file:
        rows = pandas.concat(pieces_of(file, columns_of(file)), ignore_index=True)
    return rows.astype({name: "int64" for name in ("rank", "epoch", "step") if name in rows})
