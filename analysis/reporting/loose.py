"""Runs without a study: their levels are whatever differs among their options and environments, and only those that do
the same work are compared. Python's own library only."""

import itertools
import os
import re

from .info import look
from .levels import make_labels, varying

# Options that do not change what a run does. threads: facts() has the actual number.
NO_FACTOR = {"out", "overwrite", "quiet", "seed", "trace", "collectives", "overhead", "ceilings",
             "bound", "hang-timeout", "threads", "log", "log-every"}


def text(value):
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def rate_text(bits_per_s):
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if bits_per_s >= factor:
            return f"{bits_per_s / factor:g}{unit}"
    return f"{bits_per_s:g}bit"


def link_rate(link):
    """In the notation of `experiments/testbed up --rate`."""
    if not link.get("host_rates"):
        return rate_text(link["rate_bits_per_s"])
    return ",".join("/".join(map(rate_text, ways)) for ways in link["host_rates"])


def racks_text(link):
    """Empty if one switch joins all hosts."""
    racks = link.get("racks")
    return f"{racks['count']} racks with uplinks of {rate_text(racks['uplink_bits_per_s'])}" if racks else ""


def link_text(link):
    return ", ".join(filter(None, (link_rate(link), racks_text(link))))


# Options that say what a step computes, or which link a simulated one crosses.
WORK = ("data", "limit", "replicate", "image-scale", "image-size", "model", "layers", "activation", "output", "bytes",
        "batch", "local-batch", "link", "network", "memory-link")


def work(info):
    """{factor: level} of the model, the data and the batch, and of the links: runs that differ in one are not compared.
    Of any run.json whose `link` is as in shape.py."""
    found = {name: text(look(info, f"options.{name}")) for name in WORK}
    model = look(info, "replay.profile.model") or look(info, "simulated.step.model")
    if model is not None:
        found["model"] = text(model)
    elif look(info, "options.layers") is None:  # of a program of its own
        found["model"] = f"{text(look(info, 'parameters'))} parameters"
    link = look(info, "link")
    found["rate"] = link_rate(link) if link else "none"
    found["racks"] = racks_text(link or {}) or "none"
    found["slow hosts"] = (link or {}).get("slow_hosts") or "none"
    return found


def groups(infos):
    """{label: places in `infos`} of the runs that do the same work over the same links, in the order of their first. The
    label is what sets them apart, "" if all do the same."""
    places = {}
    for i, info in enumerate(infos):
        places.setdefault(tuple(work(info).items()), []).append(i)
    kinds = {kind: dict(kind) for kind in places}
    labels = make_labels(kinds, varying(kinds.values())) if len(kinds) > 1 else dict.fromkeys(kinds, "")
    return {labels[kind]: some for kind, some in places.items()}


def facts(info):
    """Everything in which two runs may differ, as text."""
    machine, link = info["machine"], info["link"]
    found = {name: text(value) for name, value in info["options"].items() if name not in NO_FACTOR}
    found.update(work(info))
    if "replay" in info:
        found.update({name: text(info["replay"][name]) for name in ("compute", "speed", "gradients")})
    found["ranks"] = text(machine["ranks"])
    found["threads"] = text(machine["threads_per_rank"])
    found["hosts"] = text(machine["nodes"])
    piece = (link or {}).get("piece")
    found["piece"] = (f"{piece['packets']} x {piece['mtu']}" if piece
                      else "unknown" if link else "none")
    found["cpu"] = machine["cpu"]
    found["commit"] = text(info["commit"])
    for name, value in (info["mpi"]["environment"] or {}).items():
        if not name.endswith("HOSTNAME"):  # set by the launcher
            found[f"env.{name}"] = text(value)
    return found


def name_meshes(all_facts):
    """Beside runs over a mesh, those without one are over data alone."""
    without = [found for found in all_facts if found.get("mesh") in (None, "", "none")]
    for found in without if len(without) < len(all_facts) else ():
        found["mesh"] = f"data={found['ranks']}"


def assign_levels(runs):
    """Sets levels and cell of each run."""
    all_facts = [facts(run.info) for run in runs]
    name_meshes(all_facts)
    factors = varying(all_facts)
    for run, found in zip(runs, all_facts):
        run.levels = {name: found.get(name, "absent") for name in factors}
        run.cell = ",".join(f"{name}={level}" for name, level in run.levels.items()) or "all"


def names_of(runs, top):
    """{cell: what the folders of its runs are called}: their last name, or else their path below the folder `top`; of
    several runs how all of these begin. {}: that does not tell the cells apart."""
    paths = {}
    for run in runs:
        paths.setdefault(run.cell, []).append(run.folder)
    for part in (os.path.basename, str):
        names = {cell: beginning(list(map(part, some))) for cell, some in paths.items()}
        if all(names.values()) and len(set(names.values())) == len(names):
            return names
    return dict.fromkeys(paths, top) if len(paths) == 1 else {}


def beginning(names):
    """As many whole words as all names begin with."""
    words = [re.split(r"([-_./ ]+)", name) for name in names]
    same = itertools.takewhile(lambda some: len(set(some)) == 1, zip(*words))
    return "".join(some[0] for some in same).strip("-_./ ")
