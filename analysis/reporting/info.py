"""Looks up values of run.json by paths such as "machine.ranks" and accepts anything else in the file. For
`gradwire show`, with Python's own library only; the report checks the whole file first (shape.py)."""

import math
import os

from .shape import RUN_SCHEMA, Bad, is_number, load_json
from .base import plain


def look(info, path):
    """None: absent."""
    for key in path.split("."):
        info = info.get(key) if isinstance(info, dict) else None
    return info


def number(info, path):
    """NaN: absent."""
    value = look(info, path)
    return float(value) if is_number(value) else math.nan


def text(info, path, absent="absent"):
    """A line that is safe on a terminal."""
    value = look(info, path)
    return plain(value) if isinstance(value, str) else absent


def items(info, path):
    value = look(info, path)
    return value if isinstance(value, list) else []


def bound(info, step_s):
    """(the bound of the run's step, the step time over it); None: not measured (train --bound)."""
    bound_s = number(info, "bound.bound_s")
    if not bound_s > 0:
        return None, None
    return bound_s, None if step_s is None else step_s / bound_s


LINK_WARNS = 0.05  # of a core for each rank that trains, as src/machine/link_cost.c has it


def link_warned(info):
    """Whether the emulated link took so much of the cores that overlap looks worse."""
    warned = look(info, "link.cost.warned")
    return warned if isinstance(warned, bool) else number(info, "link.cost.cores_per_rank") > LINK_WARNS


LABELLED = ("not encoded here", "nothing is compressed")  # of src/run/session_unmet.c: a label that claims it would lie


def unmet(info):
    """[(what, option, why)] of what the run was asked for and did not do."""
    return [(text(one, "what"), f"--{text(one, 'option')} {text(one, 'value')}", text(one, "why"))
            for one in items(info, "comm.unmet") if isinstance(one, dict)]


def uncompressed(info):
    """What follows a label that claims compression: LABELLED, in parentheses; "": the run did compress."""
    if text(info, "comm.codec").endswith(f" ({LABELLED[0]})"):
        return f" ({LABELLED[0]})"
    return f" ({LABELLED[1]})" if LABELLED[1] in (what for what, *_ in unmet(info)) else ""


SIMULATED = "simulated"  # what such marks begin with
DRAWN, MEASURED = ", and delays are drawn", ", by computation that was measured for this run"


def repeats_exactly(marks):
    """Whether a run with these marks has the same figures whenever it is run: simulated, and nothing drawn or measured."""
    return any(mark.startswith(f"{SIMULATED}: ") and not mark.endswith((DRAWN, MEASURED)) for mark in marks)


def unlike(info):
    """[(name, words)] of what makes all figures of the run unlike those of others."""
    found = [(what, f"{option}: {why}") for what, option, why in unmet(info) if what in LABELLED]
    if look(info, "replay") is not None:
        found.append(("replayed", f"{text(info, 'replay.profile.model')} of {text(info, 'replay.profile.device')} "
                      f"({text(info, 'replay.profile.machine')}), {number(info, 'replay.speed'):g} times as fast"
                      + ", gradients are normal numbers" * (look(info, "replay.data_dependent") is True)))
    if look(info, "simulated") is not None:
        drawn = DRAWN * (look(info, "simulated.step.inject_skew") is not None)
        trained = look(info, "simulated.train") is True
        measured = MEASURED * (look(info, "simulated.step_profile") is None if trained else
                               look(info, "simulated.step.source") == "measured for this run")
        what = "no rank ran, all times are" if trained else "no rank ran, all figures are"
        found.append((SIMULATED, f"{what} a model's ({text(info, 'simulated.engine')}){measured}{drawn}"))
    return found


MARK_BUSY = "busy machine: the ranks lacked more than a tenth of their CPUs"


def busy(info):
    """What else the machine did, if that was so much that the run's times are not to be trusted: words, with the
    figures; None: not so, or not known."""
    for when in ("during", "before"):
        if look(info, f"machine.busy.{when}.warned") is True:
            return f"{when} this run {text(info, f'machine.busy.{when}.text')}"
    return None


def unsettled(info):
    """Likewise if halves of the steps' blocks disagree on the step time."""
    odd, even, first, last = (1e6 * number(info, f"results.summary.halves.{key}_s")
                              for key in ("odd", "even", "first", "last"))
    if look(info, "results.summary.halves.warned") is not True:
        return None
    return (f"halves of its steps disagree: odd blocks take {odd:.1f} us, even ones {even:.1f}, the first half "
            f"{first:.1f}, the last {last:.1f}")


def resumed(info):
    return bool(info.get("resumed") or info.get("interruptions"))


def whole(info, path):
    """A number of steps or ranks; Bad if it is absent or not one."""
    value = look(info, path)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Bad(f"run.json: lacks {path}: not a whole run's")
    if not 0 <= value <= 1 << 53:  # a double counts to there
        raise Bad(f"run.json: {path} is {str(value)[:40]}: damaged")
    return value


def read_info(folder):
    """run.json of a finished run."""
    info = load_json(os.path.join(folder, "run.json"), links=True)
    schema = look(info, "schema")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise Bad("run.json: has no schema number: not written by gradwire train")
    if schema != RUN_SCHEMA:
        raise Bad(f"run.json: schema {str(schema)[:40]}, this version reads {RUN_SCHEMA}: use the version that wrote it")
    return info
