"""What a study expects, in words that figures can support or contradict: `report: {expect: {LEVELS: WORD}}`
of a spec, or `gradwire report --expect 'LEVELS: WORD'`. LEVELS is FACTOR=LEVEL,...: all
configurations with these levels, each against the one that it is compared with. Python's own library
only, so that experiments/run may check a spec by it."""

import math
import re

MARGIN = 0.03  # relative: a smaller difference of step times is no "faster" and no "slower"
LEAST = 3  # pairs of runs, or seeds, from which on there is an interval, as stats.py has it
POINTS = 1.0  # the same of accuracies, in points of a hundred

# Word: (the figure, the direction in which it must differ, whether it must not differ so).
WORDS = {"faster": ("step", -1, False), "slower": ("step", 1, False),
         "not faster": ("step", -1, True), "not slower": ("step", 1, True),
         "more accurate": ("accuracy", 1, False), "less accurate": ("accuracy", -1, False),
         "as accurate": ("accuracy", -1, True)}

TIMES = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) times as fast")  # or faster
EVERY = [*WORDS, "N times as fast"]

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"


def levels_of(text, factors):
    """{factor: level} of FACTOR=LEVEL,... where `factors` is {factor: levels}, and a level may have
    commas itself; None: not these factors' levels, or a factor twice."""
    text = text.strip()
    for name, levels in factors.items():
        for level in levels:
            head = f"{name}={level}"
            if text == head:
                return {name: level}
            if text.startswith(head + ","):
                rest = levels_of(text[len(head) + 1:], factors)
                if rest is not None and name not in rest:
                    return {name: level, **rest}
    return None


def words_of(text):
    """The words of EVERY, separated by commas; None: another is among them."""
    words = [" ".join(word.split()) for word in text.split(",")]
    return words if all(word in WORDS or TIMES.fullmatch(word) for word in words) else None


def figure_of(word):
    """What it is about: step or accuracy."""
    return WORDS[word][0] if word in WORDS else "step"


def state(word, value, low, high, differs):
    """SUPPORTED, REFUTED or UNDECIDED, by the logarithm of a ratio of step times, or a difference
    in points, and its interval (None: there is none)."""
    if low is None or differs is None:
        return UNDECIDED
    if found := TIMES.fullmatch(word):
        wanted = -math.log(float(found[1]) or 1)
        return SUPPORTED if high <= wanted else REFUTED if low > wanted else UNDECIDED
    figure, direction, denied = WORDS[word]
    margin = math.log1p(MARGIN) if figure == "step" else POINTS
    # A significant difference within the margin shows neither side, unless its whole interval does.
    if max(direction * low, direction * high) < margin:
        return SUPPORTED if denied else REFUTED
    if differs and direction * value >= margin:
        return REFUTED if denied else SUPPORTED
    return UNDECIDED


def counted(states):
    """`2 supported, 1 refuted, 4 undecided`."""
    return ", ".join(f"{states.count(one)} {one}" for one in (SUPPORTED, REFUTED, UNDECIDED))


def overall(states):
    """Of all statements: one that does not hold decides."""
    for one in (REFUTED, UNDECIDED):
        if one in states:
            return one
    return SUPPORTED
