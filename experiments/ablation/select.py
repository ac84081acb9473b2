"""--only: some of a study's cells, by their levels.

A filter is FACTOR=PATTERN,..; all of its patterns must match. Of several filters one must match. A
pattern is a shell's (* ? [..]), for the level or for its name in folders."""

from fnmatch import fnmatchcase

from ablation.design import slug
from ablation.lines import nearest, show
from tool import BadInput


def cells(all_cells, filters):
    """The cells that one of the filters matches, in their order; without a filter, all."""
    if not filters:
        return list(all_cells)
    factors = {name: list(dict.fromkeys(cell.levels[name] for cell in all_cells))
               for name in all_cells[0].levels}
    rules = [conditions(text, factors) for text in filters]
    found = [cell for cell in all_cells
             if any(all(fits(cell.levels[name], pattern) for name, pattern in rule)
                    for rule in rules)]
    if not found:
        raise BadInput(f"--only {show(' '.join(filters))}: no cell has these levels together; "
                      "--dry-run shows the cells")
    return found


def fits(level, pattern):
    return pattern in (level, slug(level)) or fnmatchcase(level, pattern) or fnmatchcase(
        slug(level), pattern)


def conditions(text, factors):
    """[(factor, pattern)]. A comma without FACTOR= after it belongs to the pattern, as in
    layers=256,128."""
    rule = []
    for part in text.split(","):
        name, equals, pattern = part.partition("=")
        if equals and name in factors:
            rule.append((name, pattern))
        elif rule and (not equals or begins(factors[rule[-1][0]], f"{rule[-1][1]},{part}")):
            rule[-1] = (rule[-1][0], f"{rule[-1][1]},{part}")
        elif equals:
            raise BadInput(f"--only {show(text)}: unknown factor {show(name)}; "
                          f"{nearest(name, factors)}")
        else:
            raise BadInput(f"--only {show(text)}: {show(part)} is not a condition; write FACTOR=LEVEL, "
                          f"with a factor of {', '.join(factors)}")
    for name, pattern in rule:
        if not any(fits(level, pattern) for level in factors[name]):
            raise BadInput(f"--only {show(text)}: no level of {show(name)} matches {show(pattern)}; "
                          f"{nearest(pattern, factors[name])}")
    return rule


def begins(levels, pattern):
    """Whether a level begins with the pattern."""
    return any(fits(level, pattern) or fnmatchcase(level, pattern + ",*") for level in levels)
