"""What a study states and its design can never decide: too few blocks or seeds for an interval, or nothing to compare
with. docs/analysis.md has the rules of the statistics."""

from ablation.lines import show
from reporting import claims, expect

BY = {"step": ("times are compared block by block", "block", "repetitions: {}"),
      "accuracy": ("accuracies are compared seed by seed", "seed", "seeds: [1, 2, .. {}]")}
BY["seconds"] = BY["bytes"] = ("what is spent until a target is compared seed by seed", *BY["accuracy"][1:])


def too_few(figure, blocks):
    """Why a figure's interval can never be known; None: it can."""
    how, what, advice = BY[figure]
    n = len(blocks) if figure == "step" else len({seed for _, seed in blocks})
    if n >= expect.LEAST:
        return None
    return f"{how}, and there {'is' if n == 1 else 'are'} {n} {what}{'' if n == 1 else 's'}; give {expect.LEAST} or more, " \
           f"{advice.format(expect.LEAST)}"


def compared(cells, baseline, within):
    """The cells' levels that a report compares with others', as reporting/verdicts.py does."""
    everyone = [cell.levels for cell in cells]
    for levels in everyone:
        other = {**baseline, **{name: levels[name] for name in within if name in levels}}
        if other != levels and other in everyone:
            yield levels


def of_expectations(nodes, factors, cells, baseline, within, blocks):
    """(Node, text) of each word of {levels: Node} that nothing can support or contradict."""
    known = list(compared(cells, baseline, within))
    for text, node in nodes.items():
        wanted = expect.levels_of(text, factors)
        if wanted is None or not any(wanted.items() <= cell.levels.items() for cell in cells):
            continue  # of the long version alone
        lonely = not any(wanted.items() <= levels.items() for levels in known)
        for word in expect.words_of(node.value):
            why = "these cells are compared with none; name others, or another baseline:" if lonely else \
                too_few(expect.parse(word).figure, blocks)
            if why:
                yield node, f"expect: {show(f'{text}: {word}')} can never be decided: {why}"


def of_claims(found, blocks):
    """The same of [(claim, Node)]."""
    for claim, node in found:
        if claims.UNTESTABLE not in claim:
            of_seed = claims.parts_of(claim["figure"])[0] in ("points", *claims.OF_SEED)
            if why := too_few("accuracy" if of_seed else "step", blocks):
                yield node, f"claims: {show(claim['claim'])} can never be decided: {why}"


def line(found, head):
    """One line of [(Node, text)], with `head` before the first text; None: there are none."""
    if not found:
        return None
    node, text = found[0]
    more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
    return f"{node.path}:{node.line}: {head}{text}{more}"
