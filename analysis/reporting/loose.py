"""Levels of runs without a study: whatever differs among their options and environments."""

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


def facts(info):
    """Everything in which two runs may differ, as text."""
    machine, link = info["machine"], info["link"]
    found = {name: text(value) for name, value in info["options"].items() if name not in NO_FACTOR}
    if "replay" in info:
        found["model"] = info["replay"]["profile"]["model"]
        found.update({name: text(info["replay"][name]) for name in ("compute", "speed", "gradients")})
    found["ranks"] = text(machine["ranks"])
    found["threads"] = text(machine["threads_per_rank"])
    found["hosts"] = text(machine["nodes"])
    found["rate"] = link_rate(link) if link else "none"
    found["racks"] = racks_text(link or {}) or "none"
    piece = (link or {}).get("piece")
    found["piece"] = (f"{piece['packets']} x {piece['mtu']}" if piece
                      else "unknown" if link else "none")
    found["slow hosts"] = (link or {}).get("slow_hosts") or "none"
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
    """Sets levels and cell of each run; returns {factor: levels}."""
    all_facts = [facts(run.info) for run in runs]
    name_meshes(all_facts)
    names = list(dict.fromkeys(name for found in all_facts for name in found))
    factors = {}
    for name in names:
        levels = list(dict.fromkeys(found.get(name, "absent") for found in all_facts))
        if len(levels) > 1:
            factors[name] = levels
    for run, found in zip(runs, all_facts):
        run.levels = {name: found.get(name, "absent") for name in factors}
        run.cell = ",".join(f"{name}={level}" for name, level in run.levels.items()) or "all"
    return factors
