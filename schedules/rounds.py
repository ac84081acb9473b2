"""The file of a schedule: docs/schedules.md has the format."""

import json


def move(sender, receiver, block, op, count=1):
    return {"from": sender, "to": receiver, "block": block, "count": count, "op": op}


def text(about, ranks, blocks, rounds):
    """The file: a line a transfer."""
    lines = ["[\n   " + ",\n   ".join(json.dumps(one) for one in transfers) + "]" for transfers in rounds]
    return (f'{{"gradwire_schedule": 1, "about": {json.dumps(about)}, "ranks": {ranks}, "blocks": {blocks},\n'
            ' "rounds": [\n  ' + ",\n  ".join(lines) + "\n ]}\n")
