"""What a study expects, in words that figures can support or contradict: `report: {expect: {LEVELS: WORD}}`
of a spec, or `gradwire report --expect 'LEVELS: WORD'`. LEVELS is FACTOR=LEVEL,...: all
configurations with these levels, each against the one that it is compared with. Python's own library
only, so that experiments/run may check a spec by it."""

import math
import re
from collections import namedtuple

MARGIN = 0.03  # relative: a smaller difference of step times is no "faster" and no "slower"
LEAST = 3  # pairs of runs, or seeds, from which on there is an interval, as stats.py has it
POINTS = 1.0  # the same of accuracies, in points of a hundred

# What a run spends until a test has the target: figure "seconds" or "bytes", column "accuracy" or "loss".
Goal = namedtuple("Goal", "figure column target")
# The figure, the direction in which it must differ, whether it must not differ so, how many times; of a goal.
Word = namedtuple("Word", "figure direction denied times goal", defaults=(None, None))

WORDS = {"faster": Word("step", -1, False), "slower": Word("step", 1, False),
         "not faster": Word("step", -1, True), "not slower": Word("step", 1, True),
         "more accurate": Word("accuracy", 1, False), "less accurate": Word("accuracy", -1, False),
         "as accurate": Word("accuracy", -1, True)}
TO = {name: Word(figure, direction, name.startswith("not "))
      for figure, less, more in (("seconds", "sooner", "later"), ("bytes", "fewer bytes", "more bytes"))
      for head, direction in ((less, -1), (more, 1)) for name in (head, f"not {head}")}

TIMES = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) times as (fast|soon|few bytes)")  # or more
BY = {"fast": "step", "soon": "seconds", "few bytes": "bytes"}
TARGET = re.compile(r"(.+) to (accuracy|loss) (\d{0,6}(?:\.\d{1,9})?)")
EVERY = [*WORDS, "N times as fast",
         *(f"{head} to accuracy A" for head in (*TO, "N times as soon", "N times as few bytes"))]

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


def parse(text):
    """The Word; None: it is none."""
    target = TARGET.fullmatch(text)
    head = target[1] if target else text
    found = (TO if target else WORDS).get(head)
    if times := TIMES.fullmatch(head):
        found = Word(BY[times[2]], -1, False, float(times[1]) or 1.0) if (times[2] != "fast") == bool(target) else None
    if found is None or target is None:
        return found
    level = float(target[3] or 0)
    if level <= 0 or (target[2] == "accuracy" and level >= 1):
        return None
    return found._replace(goal=Goal(found.figure, target[2], level))


def words_of(text):
    """The words of EVERY, separated by commas; None: another is among them."""
    words = [" ".join(word.split()) for word in text.split(",")]
    return words if all(map(parse, words)) else None


def margin_of(word):
    return POINTS if word.figure == "accuracy" else math.log1p(MARGIN)


def state(text, value, low, high, differs):
    """SUPPORTED, REFUTED or UNDECIDED, by the logarithm of a ratio of times or bytes, or a difference
    in points, and its interval (None: there is none)."""
    if low is None or differs is None:
        return UNDECIDED
    word = parse(text)
    if word.times:
        wanted = -math.log(word.times)
        return SUPPORTED if high <= wanted else REFUTED if low > wanted else UNDECIDED
    direction, margin = word.direction, margin_of(word)
    # A significant difference within the margin shows neither side, unless its whole interval does.
    if max(direction * low, direction * high) < margin:
        return SUPPORTED if word.denied else REFUTED
    if differs and direction * value >= margin:
        return REFUTED if word.denied else SUPPORTED
    return UNDECIDED


def bound(text, value):
    """What the interval has to leave behind for another state than UNDECIDED, if the value stays."""
    word = parse(text)
    if word.times:
        return -math.log(word.times)
    margin = margin_of(word)
    return 0.0 if word.direction * value >= margin else word.direction * margin


def bounds(text):
    """The ratios on which the state of a word of times or bytes depends."""
    word = parse(text)
    return [1 / word.times] if word.times else [math.exp(sign * margin_of(word)) for sign in (1, -1)]


def counted(states):
    """`2 supported, 1 refuted, 4 undecided`."""
    return ", ".join(f"{states.count(one)} {one}" for one in (SUPPORTED, REFUTED, UNDECIDED))


def overall(states):
    """Of all statements: one that does not hold decides."""
    for one in (REFUTED, UNDECIDED):
        if one in states:
            return one
    return SUPPORTED
