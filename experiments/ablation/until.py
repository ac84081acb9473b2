"""--until-decided: blocks are added, each with a seed of its own, until what the spec expects is decided, the budget
ends, or as many blocks as were declared are there. The report judges by that number (analysis/reporting/looks.py)."""

import itertools
from dataclasses import replace

from ablation.progress import duration
from reporting import expect
from tool import BadInput

MOST, LIMIT = 20, 1000  # blocks: if none are named, and that can be


def extended(study, blocks):
    """The study with so many blocks. Those that the spec lacks have seeds that no other run has."""
    used = {seed for _, seed in study.blocks} | set(study.tune.seeds if study.tune else ())
    fresh = (seed for seed in itertools.count(1) if seed not in used)
    more = [(1, next(fresh)) for _ in range(blocks - len(study.blocks))]
    return replace(study, blocks=[*study.blocks, *more])


def planned(study, wanted, old, out):
    """(the study as its folder has it, the most blocks). wanted: those of this call, 0: as they are declared, or MOST;
    None: nothing is to grow. old: study.json; None: none yet."""
    declared = ((old or {}).get("until") or {}).get("most")
    if old is None and wanted is None or old is not None and declared is None and wanted is None:
        return study, None
    if old is not None and declared is None:
        raise BadInput(f"{out}: was begun without --until-decided, and how often a study may be looked at must be "
                       "declared before its first run: name another folder by --out")
    if old is not None and wanted not in (None, 0, declared):
        raise BadInput(f"{out}: was begun with --most {declared}, by which its intervals are computed: give that, or "
                       "omit --most")
    if old is not None:
        return extended(study, len(old["blocks"])), declared
    most, first = wanted or MOST, max(len(study.blocks), expect.LEAST)
    if not any(expect.levels_of(levels, study.factors) for levels in study.report.get("expect", ())):
        raise BadInput(f"{study.path}: --until-decided: report: has no expect: that could be decided"
                       f"{' of the levels that short: has' * study.short}; give it")
    if most <= first:
        raise BadInput(f"--most {most}: the study begins with {first} blocks: name more")
    return extended(study, first), most


class Watch:
    """Whether another block is to come. statements(): what the report says of each expectation."""

    def __init__(self, most, budget_s, statements):
        self.most, self.budget_s, self.statements = most, budget_s, statements

    def ended(self, blocks, spent_s):
        """(how many statements are undecided, why no block follows; None: one does)."""
        said = self.statements()
        undecided = [one for one in said if one.state == expect.UNDECIDED]
        if not undecided:
            return 0, "every expectation is decided"
        if not any(one.more for one in undecided):
            return len(undecided), "what is undecided can be decided by no number of runs"
        if blocks >= self.most:
            return len(undecided), f"the declared {self.most} blocks are used up"
        if self.budget_s is not None and spent_s * (blocks + 1) / blocks > self.budget_s:
            return len(undecided), f"the budget of {duration(self.budget_s)} ends before another block"
        return len(undecided), None
