"""The specs that come with gradwire, by the names of their studies. What is kept of a study in experiments/results is
read beside its spec. Reading one takes PyYAML."""

import glob
import hashlib
import os
import sys

from .base import BadInput

EXPERIMENTS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "experiments")
sys.path.append(EXPERIMENTS)


def paths():
    """{name: path} of all specs, those of whole reports first."""
    found = sorted(glob.glob(os.path.join(EXPERIMENTS, "reports", "*.yaml"))) + \
        sorted(glob.glob(os.path.join(EXPERIMENTS, "*.yaml")))
    return {os.path.splitext(os.path.basename(path))[0]: path for path in found}


def path_of(name, whose):
    """The spec of a study; BadInput about the file `whose` of it."""
    if name not in paths():
        raise BadInput(f"{whose}: of a study {name}, whose spec is not in {EXPERIMENTS}: use the folders of its runs")
    return paths()[name]


def plain(node):
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    return [plain(item) for item in node.value] if isinstance(node.value, list) else node.value


def hints_of(report):
    """`report:` as study.json has it."""
    hints = plain(report) if report else {}
    if isinstance(within := hints.get("compare_within"), str):
        hints["compare_within"] = [within]
    for name in {"target_accuracy", "target_loss"} & hints.keys():
        hints[name] = float(hints[name])
    return hints


def study_of(path):
    """What a spec says of its study, as study.json has it: all but what takes the program's options."""
    from ablation import claims, lines
    data, text = lines.text_of(path)
    top = lines.load(path, text)
    entries = top.value
    source = plain(entries["source"]) if "source" in entries else []
    return {"claim": " ".join(entries["claim"].value.split()), "source": source if isinstance(source, list) else [source],
            "claims": [claim for claim, _ in claims.read(top)], "report": hints_of(entries.get("report")),
            "design": entries["design"].value if "design" in entries else "grid",
            **({"tune": plain(entries["tune"])} if "tune" in entries else {}),
            "spec": {"file": path, "sha256": hashlib.sha256(data).hexdigest(), "text": text}}
