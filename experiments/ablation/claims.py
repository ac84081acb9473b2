"""Reads `claims:` of a spec; analysis/reporting/claims.py says what a claim is."""

from ablation import lines
from ablation.lines import check_keys, nearest, show
from reporting import claims


def read(top):
    """[(claim as {key: text}, its Node)] of a spec, without the levels, which need its factors."""
    node = top.value.get("claims")
    if node is None:
        return []
    if not isinstance(node.value, list) or not node.value:
        raise node.bad(f"claims: is {node.kind}, must be a list of claims, each with {', '.join(claims.CLAIM)}")
    found = [(read_one(item), item) for item in node.value]
    seen = {}
    for claim, item in found:
        if claim["claim"] in seen:
            raise item.bad(f"claims: {show(claim['claim'])} again; it stands on line "
                           f"{seen[claim['claim']]} already: say what differs")
        seen[claim["claim"]] = item.line
    return found


def of_file(path):
    """The claims of the spec in this file."""
    _, text = lines.text_of(path)
    return [claim for claim, _ in read(lines.load(path, text))]


def read_one(item):
    entries = check_keys(item, claims.KEYS, "key of a claim:")
    claim = {}
    for key, node in entries.items():
        claim[key] = " ".join(node.value.split()) if isinstance(node.value, str) else ""
        if not claim[key] or not claim[key].isprintable():
            raise node.bad(f"{key}: is {node.kind}, must be a text in one line; quote it if it contains "
                           "brackets, braces or a colon")
    if wrong := claims.fault(claim):
        key, why = wrong
        raise entries.get(key, item).bad(f"{key}: {show(claim.get(key, 'a claim'))} {why}")
    return claim


def check(found, factors, cells, baseline, source):
    """Whether each claim is of a study's cells ([levels]) and by one of its sources."""
    for claim, item in found:
        for name in claim["whose"].split(", "):
            if name not in source:
                raise item.value["whose"].bad(f"whose: {show(name)} is not in source:; "
                                              f"{nearest(name, source) if source else 'give source:'}")
        if claims.UNTESTABLE in claim:
            continue
        try:
            first, second, pair = claims.cells_of(claim, factors, baseline)
            share = claims.share_of(claim, factors, baseline)
        except LookupError as error:
            key, = error.args
            raise item.value[key].bad(f"{key}: {show(claim[key])} are no levels; write FACTOR=LEVEL,.. with the "
                                      f"factors {', '.join(factors)}") from error
        for key, levels in (("cell", first), ("against", second), ("share", share),
                            *(("than", one) for one in pair or ())):
            if levels is not None and levels not in cells:
                named = ",".join(f"{name}={level}" for name, level in levels.items())
                raise item.value[key].bad(f"{key}: {show(named)} is not a cell of the design; name one")
        if first == second:
            raise item.value["against"].bad("against: is the cell itself; name the levels that differ")
