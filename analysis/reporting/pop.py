"""POP's multiplicative efficiencies of a run's mean step, from the ledger's figures of each rank. docs/analysis.md,
"Efficiencies", defines them. Python's own library only."""

import io
import math
import os

from .csvrows import rows_of
from .info import busy, items, look, number
from .shape import Bad, open_regular

NAMES = {"parallel": "parallel efficiency", "load_balance": "load balance", "communication": "communication efficiency",
         "serialisation": "serialisation efficiency", "transfer": "transfer efficiency"}
BY_CLOCKS = ("serialisation", "transfer")  # need to know who waited for whom
MOST_UNSURE = 0.01  # of a step: what the clocks' error can move from waiting to transfer
MOST_INTERRUPTED = 0.1  # of the steps, as the report has it
TAIL = 1 << 14


def why_none(info):
    """Why the run has none of them; None: it has."""
    own = [number(rank, "own_s") for rank in items(info, "results.ranks")]
    if number(info, "machine.ranks") == 1:
        return "one rank"
    if look(info, "simulated") is not None:
        return "simulated"
    crowded = look(info, "machine.oversubscribed")
    if crowded is None or len(own) != number(info, "machine.ranks") or math.isnan(sum(own)) or max(own) <= 0:
        return "no figures of each rank"
    if crowded:
        return "oversubscribed: a rank's time is not its own"
    if busy(info):
        return "busy machine"
    if number(info, "results.summary.interrupted") > MOST_INTERRUPTED:
        return f"more than {MOST_INTERRUPTED:.0%} of the steps interrupted"
    return None


def unsure_s(folder):
    """What the clocks' error can make of a rank's waiting in a step, at most: by the last row of batches.csv. NaN: not
    known."""
    columns = ("clock_err_s", "messages", "collectives")
    try:
        with open_regular(os.path.join(folder, "batches.csv")) as file:
            titles = file.readline()
            file.seek(max(len(titles), os.fstat(file.fileno()).st_size - TAIL))
            line = file.read(TAIL).rstrip(b"\n").rpartition(b"\n")[2]
        row = next((row for _, row in rows_of(io.BytesIO(titles + line + b"\n"), columns, columns)), {})
    except (OSError, Bad):
        return math.nan
    return row.get("clock_err_s", math.nan) * (row.get("messages", 0) + row.get("collectives", 0))


def efficiencies(info, folder):
    """({name of NAMES: share}, why some are blank; None: none is)."""
    found, why = dict.fromkeys(NAMES, math.nan), why_none(info)
    if why is not None:
        return found, why
    wall, own, waiting = ([number(rank, key) for rank in items(info, "results.ranks")]
                          for key in ("wall_s", "own_s", "waiting_s"))
    step, most, mean = max(wall), max(own), sum(own) / len(own)
    found.update(parallel=mean / step, load_balance=mean / most, communication=most / step)
    unsure = unsure_s(folder)
    if math.isnan(sum(waiting)):
        return found, f"{' and '.join(BY_CLOCKS)}: waiting is not known"
    if not unsure <= MOST_UNSURE * step:
        return found, f"{' and '.join(BY_CLOCKS)}: " + (
            "the clocks' error is not known" if math.isnan(unsure) else
            f"the clocks' error can be {100 * unsure / step:.1f}% of a step")
    ideal = min(step, max(map(sum, zip(own, waiting))))
    found.update(serialisation=most / ideal, transfer=ideal / step)
    return found, None
