"""The settings of a spec, and the words that they become.

A setting is an option of `gradwire train` (or of the command of gradwire that the spec names), a place
of the spec's command (base.py), a placement (PLACEMENT), or `env.NAME`. The options' names come from
the program's help; their values are checked by the program itself (check.py)."""

import argparse
import functools
import os
import re
import shlex
import subprocess
from dataclasses import dataclass

from ablation.lines import Node, nearest, show
from emulation.quantity import BITS, offload_of, racks_fault, rates_of
from tool import BadInput

OF_TESTBED = {f"env.GRADWIRE_{name}" for name in ("TESTBED", "LINK_RATE", "LINK_PIECE", "HOST_RATES",
                                                  "SLOW_HOSTS", "RACKS")}
LINK = ("offload", "mtu", "racks", "uplink")  # of the testbed, which has defaults
NETWORK = ("network", "link")  # of a cell that is simulated
SIMULATE = "simulate"  # the testbed's placement, but simulated
OF_MODEL = ("memory-link", "coding-ns")  # options of `simulate` beside these, for cells of `train`
PLACEMENT = ("ranks", "hosts", "rate", "per-host", *LINK, *NETWORK, SIMULATE)
RANGES = {"ranks": (1, 4096), "hosts": (2, 64), "per-host": (1, 4096), "mtu": (1000, 9000), "racks": (1, 64),
          "threads": (1, 4096)}
# The testbed's values: its reader, and what they must be.
OF_LINK = {"rate": (lambda text: text == "none" or rates_of(text),
                    "1mbit to 100gbit, e.g. 1gbit, or 50mbit/200mbit to send and receive at; for "
                    "one rate per host quote a list with commas; none runs without the testbed"),
           "uplink": (BITS, "1mbit to 100gbit, e.g. 200mbit"),
           "offload": (offload_of, "on, off, or the segments of a piece, 1 to 44")}
# Options that the runner gives itself, or that would prevent a run.
RESERVED = {"seed": "give seeds:", "out": "the runner names the folders", "overwrite": "remove it",
            "quiet": "remove it", "check": "the runner checks anyway"}
# What the testbed's links and one machine's memory are to `simulate` (docs/simulate.md): TCP's headers leave so much of
# a rate.
OF_RATE, OF_HOSTS, IN_MEMORY, CODING_NS = 0.956, "40us,5us", "70gbit,1us", "0.5"
AUTO = "auto"  # ranks: as many as there is room for
YES, NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


@dataclass
class Setting:
    value: object  # text; True: a flag; None: not given, or, of `env`, unset
    node: Node


class Options(dict):
    """{option or place of the command: whether it takes a value}; `subcommand`: of gradwire, whose options they are."""

    def __init__(self, options, places, subcommand):
        super().__init__({**options, **dict.fromkeys(places, True)})
        self.places, self.subcommand, self.of = places, subcommand, f"gradwire {subcommand}"


def options_of(program, base):
    """The Options of a study's command; ValueError: it has none to run a cell by."""
    subcommand = base.subcommand or "train"  # the library takes those of train
    simulated = options_by_help(program, "simulate") if subcommand in ("replay", "train") else {}
    if subcommand == "train":
        simulated = {name: simulated[name] for name in OF_MODEL if name in simulated}
    return Options({**simulated, **options_by_help(program, subcommand)}, base.places, subcommand)


@functools.cache
def options_by_help(program, subcommand):
    try:
        done = subprocess.run([program, subcommand, "--help"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{program}: cannot be run: {why}; build it first, or name its folder by "
                      "--build") from error
    found = re.findall(r"^  --([a-z][a-z0-9-]*)( \S+)?\s", done.stdout, re.MULTILINE)
    options = {name: bool(meta) for name, meta in found}
    if done.returncode != 0 or not {"out", "check"} <= options.keys():
        raise ValueError
    return options


def known(options):
    """All names of settings, for messages."""
    return [*PLACEMENT, *(name for name in options if name not in RESERVED)]


def is_setting(name, options):
    return name in PLACEMENT or name in options or name.startswith("env.")


def whole(node, low, high, what):
    """The node's text as a number."""
    text = node.value
    if isinstance(text, str) and re.fullmatch(r"[+-]?\d{1,15}", text, re.ASCII):
        if low <= int(text) <= high:
            return int(text)
    raise node.bad(f"{what}: {text_shown(node)} must be a whole number from {low} to {high}")


def text_shown(node):
    """For "NAME: ... must be": the value, or its kind if it is not text."""
    return show(node.value) if isinstance(node.value, str) else f"is {node.kind},"


def check_name(name, node, options):
    if name.startswith("env."):
        if not re.fullmatch(r"env\.[A-Za-z_][A-Za-z0-9_]*", name):
            raise node.bad(f"{show(name)} does not name an environment variable; write env.NAME with "
                           "letters, digits and _")
        if name == "env.GRADWIRE":
            raise node.bad(f"{show(name)}: the runner sets it; set the options in it instead")
        if name in OF_TESTBED:
            raise node.bad(f"{show(name)}: the testbed sets it; set hosts: and rate: instead")
    elif name in RESERVED and name in options:
        raise node.bad(f"option '{name}' is not for a spec; {RESERVED[name]}")
    elif not is_setting(name, options):
        raise node.bad(f"unknown option {show(name)}; {nearest(name, known(options))}")


def setting(name, node, options):
    """One setting, checked as far as possible without the program."""
    check_name(name, node, options)
    if node.value is None:
        return Setting(None, node)
    if not isinstance(node.value, str):
        raise node.bad(f"{name}: is {node.kind}, must be one value; quote it if it contains "
                       "commas, brackets or braces")
    if not node.value.isprintable():
        raise node.bad(f"{name}: {show(node.value)} contains a control character; remove it")
    if name in RANGES and (name, node.value) != ("ranks", AUTO):
        whole(node, *RANGES[name], name)
    elif name in OF_LINK:
        read, kind = OF_LINK[name]
        try:
            read(node.value)
        except argparse.ArgumentTypeError as error:
            raise node.bad(f"{name}: {show(node.value)} must be {kind}") from error
    elif name == SIMULATE or name in options and not options[name]:  # a flag
        if node.value.lower() not in YES | NO:
            raise node.bad(f"{name}: {show(node.value)} must be true or false: it takes no value")
        return Setting(True if node.value.lower() in YES else None, node)
    elif node.value.startswith("--"):
        raise node.bad(f"{name}: {show(node.value)} is an option, not a value; write it as one")
    return Setting(node.value, node)


def add(settings, name, new):
    if name in settings:
        raise new.node.bad(f"{name} again; it is set on line {settings[name].node.line} already: "
                           "remove one")
    settings[name] = new


def settings_of_words(node, options):
    """The settings of "--name value --name=value --flag"."""
    if not node.value.replace("\n", " ").isprintable():
        raise node.bad(f"{show(node.value)} contains a control character; remove it")
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
            raise node.bad(f"{show(name)} is not an option of {options.of}; write it as a "
                           f"mapping, {{{name}: VALUE}}")
        if options[name] and not equals:
            if not words:
                raise node.bad(f"--{name} needs a value; give one")
            value = words.pop(0)
        given = value if options[name] or equals else "true"
        add(settings, name, setting(name, Node(node.path, node.line, given), options))
    return settings


def settings_of(node, options):
    """{name: Setting} of a level or of base."""
    if node.value is None:
        return {}
    if isinstance(node.value, str):
        return settings_of_words(node, options)
    if isinstance(node.value, list):
        raise node.bad("a list must be options: a mapping {option: value}, or words --name value")
    return {name: setting(name, value, options) for name, value in node.value.items()}


def words_of(settings, places):
    """The words of the options."""
    words = []
    for name, given in settings.items():
        if name in PLACEMENT or name in places or name.startswith("env.") or given.value is None:
            continue
        words += [f"--{name}"] if given.value is True else [f"--{name}", given.value]
    return words


def places_of(settings, places, node):
    """{place of the command: text}; `node`: the command's."""
    for name in places:
        if name not in settings or settings[name].value is None:
            raise node.bad(f"command: nothing gives {{{name}}} a value in each cell; set {name} in base:, or by a "
                           "factor")
    return {name: settings[name].value for name in places}


def placed(settings):
    """{placement that is given: its text}."""
    return {name: settings[name].value for name in PLACEMENT
            if name in settings and settings[name].value is not None}


def ranks_of(settings):
    """How many ranks a cell has; auto: so many that each of their threads has a CPU of this process."""
    given = placed(settings).get("ranks", "1")
    if given != AUTO:
        return int(given)
    threads = settings.get("threads")
    return max(len(os.sched_getaffinity(0)) // int(threads.value if threads and threads.value else 1), 1)


def network_of(settings, ranks, base):
    """The words of a cell's simulated placement; None: its ranks are real."""
    given = placed(settings)
    named = next((name for name in ("link", SIMULATE) if name in given), None)
    if named is None and base.subcommand != "simulate":
        if "network" in given:
            raise settings["network"].node.bad("network without a link; give link: RATE,LATENCY,OVERHEAD, which has "
                                               "the cell simulated")
        return None
    if base.subcommand not in ("train", "replay", "simulate"):
        raise settings[named].node.bad(f"{named}: a cell is simulated by the profile of its model; the study's command "
                                       "must be gradwire train, replay or simulate")
    given = {**links_of(base, settings, ranks), **given} if named == SIMULATE else given
    for name in ("hosts", *(["rate"] if named == "link" else []), *LINK):
        if name in given and given[name] != "none":
            raise settings[name].node.bad(f"{name} beside {named}:; a cell is simulated or runs on the testbed, remove "
                                          "one of them")
    return ["--ranks", str(ranks), *(word for name in ("per-host", *NETWORK, *OF_MODEL) if name in given
                                     for word in (f"--{name}", given[name]))]


def links_of(base, settings, ranks):
    """The placement of `simulate: true`: links of the cell's rate, or without one the memory of a single host."""
    given = placed(settings)
    rate = given.get("rate", "none")
    try:
        bits = BITS(rate) if rate != "none" else 1e9  # which nothing crosses
    except argparse.ArgumentTypeError as error:
        raise settings["rate"].node.bad(f"rate: {show(rate)} must be one rate beside {SIMULATE}:, e.g. 1gbit") from error
    own = {"memory-link": IN_MEMORY, "link": f"{OF_RATE * bits / 1e6:g}mbit,{OF_HOSTS}"}
    if base.subcommand != "train":  # which measures what coding takes
        own["coding-ns"] = CODING_NS
    return {**({"per-host": str(ranks)} if rate == "none" else {}),
            **{name: text for name, text in own.items() if name not in settings}}


def testbed_of(settings, ranks):
    """Cell.testbed if a rate or hosts are given; by default as many hosts as the ranks need."""
    given = placed(settings)
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
    if wrong := racks_fault(hosts, int(given.get("racks", 1)), given.get("uplink")):
        raise settings[wrong[0]].node.bad(f"{wrong[0]}: {wrong[1]}")
    return {"hosts": hosts, "rate": rate, "per_host": per_host,
            **{name: given[name] for name in LINK if name in given}}

