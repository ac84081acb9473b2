"""Settings, as a spec writes them, and the words of `gradwire train` that they become.

A setting is one of four: an option of `gradwire train`, a placement (PLACEMENT), or `env.NAME`. The
names of the options are the program's own, from its help; what their values may be, it judges."""

import functools
import re
import shlex
import subprocess
from dataclasses import dataclass

from ablation.lines import BadSpec, Node, nearest, show

OF_TESTBED = {f"env.GRADWIRE_{name}" for name in ("TESTBED", "LINK_RATE", "LINK_PIECE", "HOST_RATES",
                                                  "SLOW_HOSTS")}
LINK = ("offload", "mtu")  # of the testbed; without them, its own defaults
PLACEMENT = ("ranks", "hosts", "rate", "per-host", *LINK)
RANGES = {"ranks": (1, 4096), "hosts": (2, 64), "per-host": (1, 4096), "mtu": (1000, 9000),
          "threads": (1, 4096)}
# What the runner gives itself, and what would keep a run from being one.
RESERVED = {"seed": "give seeds:", "out": "the runner names the folders", "overwrite": "leave it",
            "quiet": "leave it", "check": "it is checked anyway"}
YES, NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


@dataclass
class Setting:
    value: object  # text; True: a flag; None: as if it were not given, or, of `env`, unset
    node: Node


@functools.cache
def train_options(program):
    """{option: whether it takes a value} of `gradwire train`."""
    try:
        done = subprocess.run([program, "train", "--help"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadSpec(f"{program}: cannot be run: {why}; build it first, or say where it is by "
                      "--build") from error
    found = re.findall(r"^  --([a-z][a-z0-9-]*)( \S+)?\s", done.stdout, re.MULTILINE)
    return {name: bool(meta) for name, meta in found}


def known(options):
    """All names that a setting can have, for messages."""
    return [*PLACEMENT, *(name for name in options if name not in RESERVED)]


def is_setting(name, options):
    return name in PLACEMENT or name in options or name.startswith("env.")


def whole(node, low, high, what):
    """The number that a node's text is."""
    text = node.value
    if isinstance(text, str) and re.fullmatch(r"[+-]?\d{1,15}", text, re.ASCII):
        if low <= int(text) <= high:
            return int(text)
    raise node.bad(f"{what}: {text_shown(node)} must be a whole number from {low} to {high}")


def text_shown(node):
    """As in "NAME: ... must be": the value, or what it is instead of one."""
    return show(node.value) if isinstance(node.value, str) else f"is {node.kind},"


def check_name(name, node, options):
    if name.startswith("env."):
        if not re.fullmatch(r"env\.[A-Za-z_][A-Za-z0-9_]*", name):
            raise node.bad(f"{show(name)}: no name of an environment variable; write env.NAME with "
                           "letters, digits and _")
        if name in OF_TESTBED:
            raise node.bad(f"{show(name)}: the testbed sets it; set hosts: and rate: instead")
    elif name in RESERVED and name in options:
        raise node.bad(f"option '{name}' is not for a spec; {RESERVED[name]}")
    elif not is_setting(name, options):
        raise node.bad(f"unknown option {show(name)}; {nearest(name, known(options))}")


def is_rate(text):
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([a-z]+)", text.lower(), re.ASCII)
    return bool(found) and 1e6 <= float(found[1]) * RATE_UNITS.get(found[2], 0) <= 1e11


def check_rate(node):
    """UP[/DOWN], for all hosts or for each in turn."""
    hosts = [word.split("/") for word in node.value.split(",")]
    if node.value != "none" and not all(len(ways) <= 2 and all(map(is_rate, ways))
                                        for ways in hosts):
        raise node.bad(f"rate: {show(node.value)} must be 1mbit to 100gbit, e.g. 1gbit, or "
                       "50mbit/200mbit to send and receive at; quoted, one for each host, by "
                       "commas; none runs without the testbed")


def check_offload(node):
    if node.value not in ("on", "off") and not (re.fullmatch(r"\d{1,2}", node.value, re.ASCII)
                                                and 1 <= int(node.value) <= 44):
        raise node.bad(f"offload: {show(node.value)} must be on, off, or the segments of a piece, "
                       "1 to 44")


def setting(name, node, options):
    """One setting, checked as far as it can be without the program."""
    check_name(name, node, options)
    if node.value is None:
        return Setting(None, node)
    if not isinstance(node.value, str):
        raise node.bad(f"{name}: is {node.kind}, must be one value; quote it, if it holds commas, "
                       "brackets or braces")
    if not node.value.isprintable():
        raise node.bad(f"{name}: {show(node.value)} holds a control character; take it out")
    if name in RANGES:
        whole(node, *RANGES[name], name)
    elif name == "rate":
        check_rate(node)
    elif name == "offload":
        check_offload(node)
    elif name in options and not options[name]:  # a flag
        if node.value.lower() not in YES | NO:
            raise node.bad(f"{name}: {show(node.value)} must be true or false: it takes no value")
        return Setting(True if node.value.lower() in YES else None, node)
    elif node.value.startswith("--"):
        raise node.bad(f"{name}: {show(node.value)} is no value but an option; write it as one")
    return Setting(node.value, node)


def add(settings, name, new):
    if name in settings:
        raise new.node.bad(f"{name} again; it is set on line {settings[name].node.line} already: "
                           "leave one")
    settings[name] = new


def settings_of_words(node, options):
    """Those of "--name value --name=value --flag"."""
    if not node.value.replace("\n", " ").isprintable():
        raise node.bad(f"{show(node.value)} holds a control character; take it out")
    try:
        words = shlex.split(node.value)
    except ValueError as error:
        raise node.bad(f"{show(node.value)}: {str(error).lower()}; close the quotes") from error
    settings = {}
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise node.bad(f"unexpected word {show(word)}; options are written --name value")
        name, equals, value = word[2:].partition("=")
        check_name(name, node, options)
        if name not in options:
            raise node.bad(f"{show(name)} is no option of gradwire train; write it as a mapping, "
                           f"{{{name}: VALUE}}")
        if options[name] and not equals:
            if not words:
                raise node.bad(f"--{name} needs a value; give one")
            value = words.pop(0)
        given = value if options[name] or equals else "true"
        add(settings, name, setting(name, Node(node.path, node.line, given), options))
    return settings


def settings_of(node, options):
    """Of a level, or of base: {name: Setting}."""
    if node.value is None:
        return {}
    if isinstance(node.value, str):
        return settings_of_words(node, options)
    if isinstance(node.value, list):
        raise node.bad("a list must be options: a mapping {option: value}, or words --name value")
    return {name: setting(name, value, options) for name, value in node.value.items()}


def environment_of(settings):
    return {name[len("env."):]: s.value for name, s in settings.items() if name.startswith("env.")}


def words_of(settings):
    """Options of `gradwire train`."""
    words = []
    for name, given in settings.items():
        if name in PLACEMENT or name.startswith("env.") or given.value is None:
            continue
        words += [f"--{name}"] if given.value is True else [f"--{name}", given.value]
    return words


def testbed_of(settings, ranks):
    """Where a rate or hosts are given: as many hosts as the ranks need, unless they are counted."""
    given = {name: settings[name].value for name in PLACEMENT
             if name in settings and settings[name].value is not None}
    if given.get("rate") == "none":
        return None
    if "rate" not in given and "hosts" not in given:
        for name in ("per-host", *LINK):
            if name in given:
                raise settings[name].node.bad(f"{name} without a testbed; give rate: or hosts:")
        return None
    per_host = int(given.get("per-host", 1))
    hosts = int(given.get("hosts", min(max(2, -(-ranks // per_host)), RANGES["hosts"][1])))
    rate = given.get("rate", "1gbit")
    if rate.count(",") not in (0, hosts - 1):
        raise settings["rate"].node.bad(f"rate: {show(rate)} has {rate.count(',') + 1} rates for "
                                        f"{hosts} hosts; give one, or one for each host")
    return {"hosts": hosts, "rate": rate, "per_host": per_host,
            **{name: given[name] for name in LINK if name in given}}

