"""The bytes of a run that crossed the uplinks of racks (experiments/testbed up --racks), by its matrix.csv.
Python's own library only."""

import os
import re

from .info import look
from .shape import Bad, open_regular

LIMIT = 64 << 20
TITLES = b"rank,peer,dimension,messages,bytes,source"
ROW = re.compile(rb"(\d{1,9}),(\d{0,9}),[a-z]+,\d{1,20},(\d{1,20}),[a-z]+")


def whole(info, path):
    """A number from 1 on; 0: there is none."""
    value = look(info, path)
    return value if isinstance(value, int) and value > 0 else 0


def of_ranks(info):
    """The rack of each rank; None: the run had no racks, or its ranks were not placed over the hosts in turn."""
    count, hosts, each, ranks = (whole(info, path) for path in (
        "link.racks.count", "link.hosts", "link.racks.ranks_per_host", "machine.ranks"))
    if 0 in (count, hosts, each, ranks) or hosts % count or \
            look(info, "machine.nodes") != min(hosts, -(-ranks // each)):
        return None
    return [rank // each % hosts // (hosts // count) for rank in range(ranks)]


def bytes_across(text, racks):
    """Of the matrix, between ranks of different racks; None: it does not tell whom MPI's own collectives sent to."""
    titles, *lines = text.splitlines() or [b""]
    if titles != TITLES:
        raise Bad("matrix.csv, line 1: other titles than a matrix has")
    total = 0
    for at, line in enumerate(lines, 2):
        row = ROW.fullmatch(line)
        if not row or max(int(row[1]), int(row[2] or 0)) >= len(racks):
            raise Bad(f"matrix.csv, line {at}: no row of a matrix of {len(racks)} ranks")
        if not row[2] and len(set(racks)) > 1:
            return None
        if row[2] and racks[int(row[1])] != racks[int(row[2])]:
            total += int(row[3])
    return total


def uplink_bytes(folder, info, links=False):
    """Bytes that a rank sent to other racks in a step: the mean over ranks and the steps that the matrix is of;
    None: not known, or there were no racks."""
    racks, path = of_ranks(info), os.path.join(folder, "matrix.csv")
    steps = whole(info, "results.steps") - whole(info, "resumed.step")
    if racks is None or steps < 1 or not os.path.lexists(path):
        return None
    with open_regular(path, links) as file:
        text = file.read(LIMIT + 1)
    if len(text) > LIMIT:
        raise Bad("matrix.csv: too long")
    total = bytes_across(text, racks)
    return None if total is None else total / len(racks) / steps
