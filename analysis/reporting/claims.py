"""The claims that a spec tests: `claims:`, a list of mappings {key: text}, each with a criterion that was
written before the run. experiments/README.md describes them, docs/analysis.md the rules of a verdict.
Python's own library only, so that experiments/run may check a spec by it."""

import difflib
import re
from dataclasses import dataclass

from .base import number
from .expect import levels_of

CLAIM = ("claim", "whose", "theirs")  # what every claim has
TEST = ("figure", "cell", "against", "than", "share", "confirmed", "direction")
UNTESTABLE = "not testable"
KEYS = (*CLAIM, *TEST, UNTESTABLE)

CONFIRMED, REFUTED, DIFFERS, UNDECIDED = "confirmed", "refuted", "differs", "undecided"
SUPERLINEAR = "superlinear"  # as fast as the criterion asks, but by more than the workers account for
NOT_HERE, NOT_YET = "not testable here", "not measured yet"

# A figure of two cells; each needs `against`.
OF_TWO = {"speedup": "times", "efficiency": "", "cost": "", "points": "points"}
SECONDS = ("step_s", "wall_s", "data_s", "forward_s", "backward_s", "recompute_s", "update_s", "compute_s",
           "encode_s", "decode_s", "codec_s", "exposed_s", "waiting_s", "transfer_s", "checkpoint_s",
           "memory_ctr_s", "memory_twin_s", "memory_model_lo_s", "memory_model_hi_s", "memory_most_s", "train_s", "test_s",
           "test_forward_s", "elapsed_s")
BYTES = ("wire_bytes", "logical_bytes", "uplink_bytes", "run_wire_bytes", *(
    f"peak_{of}.{phase}" for of in ("bytes", "sum_bytes") for phase in ("setup", "training", "evaluation", "total")))
OF_SEED = ("test_accuracy", "test_loss", "train_loss", "validation_accuracy", "precision", "recall", "f1")
COLUMNS = (*SECONDS, *BYTES, *OF_SEED, "messages", "collectives")
FIGURES = (*OF_TWO, *COLUMNS)

_NUMBER = r"[+-]?\d{1,12}(?:\.\d{1,9})?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
_LIMIT = re.compile(rf"(>=|<=|>|<) ?({_NUMBER})")
SPANS = "LOW..HIGH, >= N, <= N, > N or < N"

TIMES = ("step_s", "wall_s", "train_s", "elapsed_s")  # whose ratio is a speedup, inverted

# Columns of claims.csv.
ROW = ("claim", "whose", "theirs", "figure", "confirmed", "ours", "low", "high", "unit", "verdict", "why",
       "workers", "whole_s", "share_s", "alone", "alone_low", "alone_high", "study", "date", "machine", "marks")
FIGURES_OF_ROW = ("ours", "low", "high", "workers", "whole_s", "share_s", "alone", "alone_low", "alone_high")


@dataclass(frozen=True)
class Span:
    """The numbers between two ends, which belong to it unless it is open; None: no end."""

    low: float | None
    high: float | None
    open: bool = False

    def holds(self, low, high):
        """Whether the interval lies wholly inside."""
        above = self.low is None or (low > self.low if self.open else low >= self.low)
        return above and (self.high is None or (high < self.high if self.open else high <= self.high))

    def excludes(self, low, high):
        """Whether it lies wholly outside."""
        below = self.low is not None and (high <= self.low if self.open else high < self.low)
        return below or (self.high is not None and
                         (low >= self.high if self.open else low > self.high))


def span_of(text):
    """The Span of `1.7..2.1`, `>= 1.8` and the like; None: it is none."""
    if found := _RANGE.fullmatch(text):
        low, high = float(found[1]), float(found[2])
        return Span(low, high) if low <= high else None
    if found := _LIMIT.fullmatch(text):
        end, is_open = float(found[2]), found[1] in "<>"
        return Span(end, None, is_open) if found[1][0] == ">" else Span(None, end, is_open)
    return None


def parts_of(figure):
    """The columns of `COLUMN` or `COLUMN / COLUMN`, or the name of a figure of two cells; None: it has another."""
    names = [name.strip() for name in figure.split("/")]
    if len(names) == 1 and names[0] in FIGURES or len(names) == 2 and set(names) <= set(COLUMNS):
        return names
    return None


def fault(claim):
    """(the key, what is wrong with its text) of {key: text}; None: it can be judged, or says why not."""
    untestable = UNTESTABLE in claim
    for key in CLAIM + (() if untestable else ("figure", "cell", "confirmed")):
        if key not in claim:
            return "claim", f"lacks {key}:; give it" + ("" if key in CLAIM else f", or {UNTESTABLE}: WHY")
    if untestable:
        given = next((key for key in TEST if key in claim), None)
        return given and (given, f"is of a claim that is {UNTESTABLE}; remove one of both")
    names = parts_of(claim["figure"])
    if names is None:
        near = difflib.get_close_matches(claim["figure"], FIGURES, 1)
        return "figure", (f"is unknown; did you mean '{near[0]}'?" if near else
                          f"must be {', '.join(OF_TWO)}, COLUMN or COLUMN / COLUMN, with a COLUMN of "
                          f"{', '.join(COLUMNS)}")
    if names[0] in OF_TWO and "against" not in claim:
        return "figure", "is of two cells; give against: FACTOR=LEVEL,.."
    if "than" in claim and ("against" not in claim or names == ["points"]):
        return "than", "divides a ratio; give against:, and a figure other than points"
    if "share" in claim and ("against" not in claim or "than" in claim or
                             names[0] not in ("speedup", "efficiency", *TIMES)):
        return "share", f"is of a speedup; give against:, no than:, and a figure of speedup, efficiency, {', '.join(TIMES)}"
    return next(((key, f"must be {SPANS}") for key in ("confirmed", "direction")
                 if key in claim and span_of(claim[key]) is None), None)


def is_of_time(figure):
    """Whether ranks that take turns on a core would change it."""
    return not set(parts_of(figure)) <= {"points", "messages", "collectives", *BYTES, *OF_SEED}


def unit_of(claim):
    names = parts_of(claim["figure"])
    if "than" in claim or ("against" in claim and names[0] not in OF_TWO):
        return "times"
    if len(names) == 2:
        return ""
    return OF_TWO.get(names[0], "s" if names[0] in SECONDS else "bytes" if names[0] in BYTES else "")


def cells_of(claim, factors, baseline):
    """The levels that the claim is about: ({}, {} or None, (of `than`: {}, {}) or None). `cell` has the baseline's
    level of a factor that it leaves out, `against` and `than` have the cell's. Raises LookupError with the key
    whose text names no levels."""
    def given(key):
        levels = levels_of(claim[key], factors)
        if levels is None:
            raise LookupError(key)
        return levels
    cell = {**baseline, **given("cell")}
    if "against" not in claim:
        return cell, None, None
    change = given("against")
    if "than" not in claim:
        return cell, {**cell, **change}, None
    other = {**cell, **given("than")}
    return cell, {**cell, **change}, (other, {**other, **change})


def share_of(claim, factors, baseline):
    """The levels of the cell in which one rank does alone what a rank of `cell` does; it has those of `against`
    otherwise. None: the claim names none. Raises LookupError as cells_of does."""
    if "share" not in claim:
        return None
    levels = levels_of(claim["share"], factors)
    if levels is None:
        raise LookupError("share")
    return {**cells_of(claim, factors, baseline)[1], **levels}


def not_here(cores):
    """The verdict on what so many cores cannot show."""
    return NOT_HERE if cores is None else f"{NOT_HERE} ({cores} core{'' if cores == 1 else 's'})"


def verdict(claim, low, high):
    """By the interval of the figure."""
    if span_of(claim["confirmed"]).holds(low, high):
        return CONFIRMED
    if not span_of(claim["confirmed"]).excludes(low, high):
        return UNDECIDED
    same = "direction" in claim and span_of(claim["direction"]).holds(low, high)
    return DIFFERS if same else REFUTED


def what_of(claim):
    """The figure in words, for tables: `speedup of ranks=2 against ranks=1`."""
    text = f"{claim['figure']} of {claim['cell']}"
    if "against" in claim:
        text += f" against {claim['against']}"
    return text + (f", over that of {claim['than']}" if "than" in claim else "")


def row_of(claim, study, **more):
    """A row of claims.csv; what `more` leaves out is blank."""
    figure = {} if UNTESTABLE in claim else {"figure": what_of(claim), "confirmed": claim["confirmed"],
                                            "unit": unit_of(claim)}
    return dict.fromkeys(ROW) | {key: claim[key] for key in CLAIM} | figure | {"study": study} | more


def untested(claim, study):
    """The row of a claim that no run has judged."""
    if UNTESTABLE in claim:
        return row_of(claim, study, verdict=NOT_HERE, why=claim[UNTESTABLE])
    return row_of(claim, study, verdict=NOT_YET)


def is_simulated(row):
    """Whether the row's figure is of time, and some of it a simulator's."""
    if row["ours"] in (None, "") or not is_of_time(row["figure"].partition(" of ")[0]):
        return False
    return any(mark.startswith("simulated") for mark in (row["marks"] or "").split("; "))


def told(row):
    """The row's verdict, and whether it rests on simulated times."""
    return row["verdict"] + (" (simulated)" if is_simulated(row) else "")


def shown(row):
    """`1.91 (1.74..2.13)` with its unit, in digits that tell it from the criterion; "" without a figure. A figure may be
    a number or its text."""
    value, low, high = (None if row[key] in (None, "") else float(row[key]) for key in ("ours", "low", "high"))
    if value is None:
        return ""
    unit, factor = row["unit"] or "", 1.0
    if unit == "s":
        unit, factor = ("s", 1.0) if abs(value) >= 1 else ("ms", 1e3)
    elif unit == "bytes" and abs(value) >= 1e6:
        unit, factor = "MB", 1e-6
    span = span_of(row.get("confirmed") or "")
    bounds = [end * factor for end in (span.low, span.high) if end is not None] if span else []
    if row["verdict"] == SUPERLINEAR:
        workers = float(row["workers"])
        bounds += [workers, 1.0, 1 / workers]  # of a speedup, an efficiency, a ratio of times
    value, low, high = (end if end is None else number(end * factor, *bounds) for end in (value, low, high))
    return f"{value}{f' ({low}..{high})' if low else ''} {unit}".rstrip()
