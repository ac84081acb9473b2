"""A study that grows until it is decided is looked at after each block, so p and intervals have to hold at all looks
together. docs/analysis.md describes the method and its simulation.

It is the bound of O'Brien and Fleming (Biometrics 1979) in continuous time, after Lan and DeMets (Biometrika 1983): the
standardized difference times the root of the share of the pairs that there may be at most is a Brownian motion, and
the reflection principle says how likely that ever leaves a band. It holds for any looks up to that number."""

import math
import re
from statistics import NormalDist


def below(z):
    """The chance of a normal deviate below z; that of NormalDist has no tail."""
    return math.erfc(-z / math.sqrt(2)) / 2


def deviate(chance):
    """Its inverse."""
    return NormalDist().inv_cdf(chance)


def p_of(p, share):
    """The chance of a difference as clear as a p at this share of the pairs, at any look, where there is none.
    share None: it is the only look."""
    if share is None or p / 2 == 0:
        return p
    return min(1.0, 4 * below(deviate(p / 2) * math.sqrt(share)))


def level_of(level, share):
    """The p at this look that the chance `level` over all looks comes to."""
    return level if share is None else 2 * below(deviate(level / 4) / math.sqrt(share))


def most_of(study, seeds=False):
    """How many blocks, or seeds, a study.json may have at most; None: it was planned without looks. Each block that
    comes has a seed of its own."""
    until = (study or {}).get("until")
    if until is None:
        return None
    repeated = len(study["blocks"]) - len({block["seed"] for block in study["blocks"]})
    return max(until["most"] - repeated * seeds, 1)


MARK = "looked at after each block, of at most {} (--until-decided)"


def marks_of(study):
    """What is said of each run of a study that grew, so that tables of runs tell it."""
    return [MARK.format(study["until"]["most"])] if "until" in study else []


def kept(runs):
    """What a study.json that grew has, by the marks of its runs; {}: it did not."""
    pattern = re.escape(MARK).replace(re.escape("{}"), r"(\d{1,4})")
    found = [re.fullmatch(pattern, mark) for run in runs for mark in run.marks]
    most = [int(one[1]) for one in found if one]
    if not most:
        return {}
    blocks = sorted({(run.block, run.info["seed"]) for run in runs})
    return {"until": {"most": most[0], "ended": "why it ended was not kept"},
            "blocks": [{"seed": seed} for _, seed in blocks]}


def text_of(study):
    """How a study that grew was judged; "": it did not."""
    until = (study or {}).get("until")
    return "" if until is None else (
        f"Blocks were added until the expectations were decided, with a look after each: {len(study['blocks'])} of at "
        f"most {until['most']}; {until.get('ended') or 'not ended yet'}. The 5% hold over all looks together "
        "(O'Brien and Fleming's bound), so p is larger and intervals are wider than those of one look. A stop makes differences "
        "look larger than they are.")
