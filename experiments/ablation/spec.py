"""Reads a spec into a Study of cells; BadInput has file and line. experiments/README.md describes
the language. The program itself checks the options' values (check.py)."""

import hashlib
import itertools
import math
import os
import re
from dataclasses import dataclass, replace

from ablation import base, claims, command, design, doubts, lines, tune
from ablation.design import LARGEST_SEED, Cell, Planned, Study, plan
from ablation.lines import check_keys, nearest, show
from reporting import expect
from tool import BadInput

__all__ = ["BadInput", "Cell", "Planned", "Study", "plan", "read_spec"]

KEYS = ("claim", "source", "claims", "command", "base", *command.PLACEMENT, "factors", "design", "baseline", "skip",
        "cells", "repetitions", "seeds", "retries", "timeout", "order_seed", "tune", "report", "short")
MERGED = ("base", "factors", "report")  # `short` replaces entries of these, and the others whole
DESIGNS = ("grid", "one-at-a-time", "list")
REPORT = ("x", "scaling", "target_accuracy", "target_loss", "compare_within", "expect")
UNITS = {"s": 1, "min": 60, "h": 3600}
MOST_CELLS, MOST_RUNS, LONGEST_NAME = 10000, 100000, 40


@dataclass
class Level:
    node: lines.Node
    settings: dict


def read_spec(path, short, program):
    """The study of a spec, or its short version; both are checked. `program`: a gradwire, whose
    help has the names of the options."""
    data, text = lines.text_of(path)
    top = lines.load(path, text)
    check_keys(top, KEYS, "key")
    study = Reader(top, program).study(data, False)
    if "short" in top.value:
        replaced = check_keys(top.value["short"], KEYS, "key of short:")
        for key in ("claim", "source", "claims", "command", "short"):
            if key in replaced:
                raise replaced[key].bad(f"{key}: cannot change in short:; remove it")
        short_study = Reader(top, program, replaced).study(data, True)
        return short_study if short else study
    if short:
        raise top.bad("there is no short: to run; add one, or omit --short")
    return study


def unknown(node, what, names):
    """The BadInput for a value that is not one of these names."""
    if isinstance(node.value, str):
        return node.bad(f"{what}: unknown {show(node.value)}; {nearest(node.value, names)}")
    return node.bad(f"{what}: is {node.kind}, must be one of {', '.join(names)}")


def holds_settings(levels):
    """Whether the levels of a factor named like an option are settings nevertheless."""
    given = [level.value for level in levels.value.values() if level.value is not None] if (
        isinstance(levels.value, dict)) else []
    return bool(given) and all(isinstance(value, dict) or str(value).startswith("--")
                               for value in given)


class Reader:
    """One version of a spec: `top`, with the replacements of `short`."""

    def __init__(self, top, program, short=None):
        self.top = top
        self.base = base.read(top.value.get("command"))
        self.options = self.read_options(program)
        self.short = short or {}
        self.entries = {**top.value, **{k: v for k, v in self.short.items() if k not in MERGED}}
        self.shared = self.read_shared(top.value)
        self.factors = self.read_factors(top.value)
        self.dropped = {}  # factor -> levels that only the long version has
        if short:
            self.shared.update(self.read_shared(short))
            self.replace_factors(short)
        self.check_conflicts()

    def read_options(self, program):
        try:
            return command.options_of(program, self.base)
        except ValueError as error:
            node = self.top.value.get("command", self.top)
            raise node.bad(f"command: gradwire {self.base.subcommand or 'train'} runs no cell; a study's command is "
                           "gradwire train, replay or simulate, or a program of your own") from error

    def node(self, key):
        return self.entries.get(key)

    # ---- what all cells share, and the factors ----

    def read_shared(self, entries):
        """Settings of the placement keys and of base."""
        shared = {}
        for key in command.PLACEMENT:
            if key in entries:
                command.add(shared, key, command.setting(key, entries[key], self.options))
        if "base" in entries:
            for name, given in command.settings_of(entries["base"], self.options).items():
                command.add(shared, name, given)
        return shared

    def read_factors(self, entries):
        node = entries.get("factors")
        if node is None:
            raise self.top.bad("no factors:; name what varies, e.g. factors: {threads: [1, 2]}")
        if not isinstance(node.value, dict) or not node.value:
            raise node.bad(f"factors: is {node.kind}, must be a mapping of factors to their levels")
        return {name: self.read_levels(name, levels) for name, levels in node.value.items()}

    def replace_factors(self, short):
        if "factors" not in short:
            return
        for name, levels in self.read_factors(short).items():
            if name not in self.factors:
                raise short["factors"].value[name].bad(
                    f"short: unknown factor {show(name)}; {nearest(name, self.factors)}")
            self.dropped[name] = set(self.factors[name]) - set(levels)
            self.factors[name] = levels

    def read_levels(self, name, node):
        """{level: Level} of one factor."""
        if not re.fullmatch(rf"[A-Za-z][A-Za-z0-9 ._-]{{0,{LONGEST_NAME - 1}}}", name):
            raise node.bad(f"factor {show(name)}: a name is up to {LONGEST_NAME} letters, digits, "
                           "spaces and . _ -; rename it")
        if not isinstance(node.value, (dict, list)) or not node.value:
            raise node.bad(f"factor {show(name)}: is {node.kind}, must be levels; give a list of "
                           "values, or a mapping of levels to settings")
        if command.is_setting(name, self.options) and not holds_settings(node):
            command.check_name(name, node, self.options)
            pairs = self.levels_of_setting(name, node)
        elif isinstance(node.value, list):
            raise node.bad(f"unknown factor {show(name)}: a list holds values of an option, a "
                           f"placement or env.NAME; {nearest(name, command.known(self.options))}")
        else:
            pairs = [(label, level, self.settings_of_level(level)) for label, level in node.value.items()]
        return self.named(name, pairs)

    def settings_of_level(self, node):
        """Its settings, among them the Base of its own `command`."""
        if not isinstance(node.value, dict) or "command" not in node.value:
            return command.settings_of(node, self.options)
        others = {name: value for name, value in node.value.items() if name != "command"}
        own = base.read(node.value["command"])
        if own.subcommand not in (None, self.options.subcommand):
            raise node.value["command"].bad(f"command: gradwire {own.subcommand} in a study of {self.options.of}; name "
                                            "that, or a program of your own")
        return {**command.settings_of(replace(node, value=others), self.options),
                "command": command.Setting(own, node.value["command"])}

    def levels_of_setting(self, name, node):
        labelled = isinstance(node.value, dict)
        for label, level in node.value.items() if labelled else zip(node.value, node.value):
            settings = {name: command.setting(name, level, self.options)}
            yield (label if labelled else self.level_name(name, level)), level, settings

    def level_name(self, factor, node):
        """The name of a level in a list."""
        if node.value is None:
            return "unset" if factor.startswith("env.") else "default"
        return node.value or "empty"

    def named(self, factor, pairs):
        levels, slugs = {}, {}
        for label, node, settings in pairs:
            if not label.isprintable():
                raise node.bad(f"{factor}: level {show(label)} contains a control character; "
                               "rename it")
            if label in levels:
                raise node.bad(f"{factor}: level {show(label)} again; it stands on line "
                               f"{levels[label].node.line} already: remove one")
            other = slugs.setdefault(design.slug(label), label)
            if other != label:
                raise node.bad(f"{factor}: level {show(label)} names the same folder as "
                               f"{show(other)} on line {levels[other].node.line}; name the levels: "
                               "{NAME: VALUE}")
            levels[label] = Level(node, settings)
        return levels

    def check_conflicts(self):
        """Each setting comes from one factor, or from what all cells share, unless a level takes that away by null."""
        owners = {name: (None, given.node) for name, given in self.shared.items()}
        for factor, levels in self.factors.items():
            for name, given in ((name, given) for level in levels.values()
                                for name, given in level.settings.items()):
                owner, node = owners.setdefault(name, (factor, given.node))
                if owner != factor and (owner is not None or given.value is not None):
                    other = "base" if owner is None else f"factor {show(owner)}"
                    raise given.node.bad(f"factor {show(factor)} sets {name}, as {other} does on "
                                         f"line {node.line}; remove one of them")

    # ---- which cells ----

    def level_of(self, factor, node, what, lenient=False):
        """The level that a value names; if lenient, None for a level of the long version only."""
        levels = self.factors[factor]
        label = self.level_name(factor, node) if node.value in (None, "") else node.value
        if isinstance(label, str) and label in levels:
            return label
        if isinstance(label, str) and label in self.dropped.get(factor, ()):
            if lenient:
                return None
            raise node.bad(f"{what}: short: has no level {show(label)} of {show(factor)}; give "
                           f"{what}: anew in short:")
        if not isinstance(label, str):
            raise node.bad(f"{what}: is {node.kind}, must be a level of {show(factor)}; give one")
        raise node.bad(f"{what}: unknown level {show(label)} of {show(factor)}; "
                       f"{nearest(label, levels)}")

    def rule(self, node, what, lenient=False):
        """{factor: level} as written; if lenient, None for a level of the long version only."""
        if not isinstance(node.value, dict) or not node.value:
            raise node.bad(f"{what}: is {node.kind}, must be a mapping {{factor: level}}")
        for factor, level in node.value.items():
            if factor not in self.factors:
                raise level.bad(f"{what}: unknown factor {show(factor)}; "
                                f"{nearest(factor, self.factors)}")
        levels = {factor: self.level_of(factor, level, what, lenient)
                  for factor, level in node.value.items()}
        return None if None in levels.values() else levels

    def rules(self, key, lenient=False):
        """[(levels, line)] of a list of rules."""
        node = self.node(key)
        if node is None or node.value is None:
            return []
        if not isinstance(node.value, list):
            raise node.bad(f"{key}: is {node.kind}, must be a list of {{factor: level}}")
        found = [(self.rule(item, key, lenient), item.line) for item in node.value]
        return [(levels, line) for levels, line in found if levels is not None]

    def baseline(self):
        """The levels of the baseline, by default each factor's first."""
        first = {name: next(iter(levels)) for name, levels in self.factors.items()}
        node = self.node("baseline")
        return first if node is None else {**first, **self.rule(node, "baseline")}

    def combinations(self):
        """[(levels, line)] of the design, without skipped ones."""
        names = {name: list(levels) for name, levels in self.factors.items()}
        kind = self.choice("design", DESIGNS, "grid")
        skip = [levels for levels, _ in self.rules("skip", lenient=True)]
        if (kind == "list") != ("cells" in self.entries):
            node = self.node("cells") or self.node("design")
            raise node.bad("design: list needs cells: [{factor: level}, ..]; give both, or neither")
        if kind == "list":
            rows = self.listed()
        elif kind == "grid":
            if (size := math.prod(map(len, names.values()))) > MOST_CELLS:
                raise self.node("factors").bad(f"factors: a grid of {size} cells; at most "
                                               f"{MOST_CELLS}: name fewer levels, or use design: "
                                               "one-at-a-time")
            rows = [(dict(zip(names, levels)), None) for levels in itertools.product(*names.values())]
        else:
            if "baseline" not in self.entries:
                raise self.node("design").bad("design: one-at-a-time needs a baseline: {factor: "
                                              "level}; give it")
            rows = [(levels, None) for levels in design.one_at_a_time(names, self.baseline())]
        kept = [row for row in rows if not any(rule.items() <= row[0].items() for rule in skip)]
        if not kept:
            raise (self.node("skip") or self.node("cells")).bad("no cell is left; skip fewer")
        return kept

    def listed(self):
        first, seen = self.baseline(), {}  # {levels: line}
        for levels, line in self.rules("cells"):
            levels = tuple({**first, **levels}.items())
            if levels in seen:
                raise BadInput(f"{self.top.path}:{line}: cells: the same cell as on line "
                              f"{seen[levels]}; remove one")
            seen[levels] = line
        return [(dict(levels), line) for levels, line in seen.items()]

    def cells(self):
        rows = self.combinations()
        all_levels = [levels for levels, _ in rows]
        baseline = self.baseline()
        if baseline not in all_levels:
            if "baseline" in self.entries:
                raise self.node("baseline").bad("baseline: is not among the design's cells; name "
                                                "one, or do not skip it")
            baseline = all_levels[0]
        return [self.cell(levels, line, levels == baseline) for levels, line in rows]

    def cell(self, levels, line, is_baseline):
        settings = dict(self.shared)
        set_by = {name: (None, given.node.line) for name, given in settings.items()}
        where = {}
        for factor, label in levels.items():
            level = self.factors[factor][label]
            settings.update(level.settings)
            set_by.update({name: (factor, given.node.line)
                           for name, given in level.settings.items()})
            where[factor] = level.node.line
        ranks = command.ranks_of(settings)
        environment = {name.removeprefix("env."): given.value for name, given in settings.items()
                       if name.startswith("env.")}
        own = settings.pop("command", None)
        program, node = (own.value, own.node) if own else (self.base, self.node("command"))
        places = [name for name in program.places if name not in tune.names(self)]
        network = command.network_of(settings, ranks, program)
        return Cell(design.cell_id(levels), levels, is_baseline, program, ranks,
                    [*(network or []), *command.words_of(settings, places)],
                    command.places_of(settings, places, node), environment,
                    None if network else command.testbed_of(settings, ranks), line or next(iter(where.values())), where,
                    set_by, network is not None, network is not None and program.subcommand == "train")

    # ---- the rest ----

    def choice(self, key, names, default):
        node = self.node(key)
        if node and node.value not in names:
            raise unknown(node, key, names)
        return node.value if node else default

    def number(self, key, low, high, default):
        node = self.node(key)
        return default if node is None else command.whole(node, low, high, key)

    def texts(self, key, default):
        """One text or a list of texts, as a list."""
        node = self.node(key)
        if node is None:
            return default
        items = node.value if isinstance(node.value, list) else [node]
        for item in items:
            if not isinstance(item.value, str) or not item.value.isprintable():
                raise item.bad(f"{key}: is {item.kind}, must be a word, or a list of them")
        return [item.value for item in items]

    def claim(self):
        node = self.node("claim")
        text = " ".join(node.value.split()) if node and isinstance(node.value, str) else ""
        if not text or not text.isprintable():
            raise (node or self.top).bad("claim: must say in a sentence what the study tests")
        return text

    def timeout(self):
        node = self.node("timeout")
        if node is None:
            return None
        found = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?) ?(s|min|h)?", str(node.value), re.ASCII)
        seconds = float(found[1]) * UNITS[found[2] or "s"] if found else 0
        if seconds < 1:
            raise node.bad(f"timeout: {command.text_shown(node)} must be a time from 1 s on, e.g. "
                           "600, 10min or 2h")
        return seconds

    def blocks(self, cells):
        """(repetition, seed) of each block."""
        repetitions = self.number("repetitions", 1, 1000, 1)
        node = self.node("seeds")
        seeds = [1]
        if node is not None:
            if not isinstance(node.value, list) or not node.value:
                raise node.bad(f"seeds: {command.text_shown(node)} must be a list of numbers, e.g. "
                               "[1, 2]")
            seeds = [command.whole(item, 0, LARGEST_SEED, "seeds") for item in node.value]
            for i, item in enumerate(node.value):
                if seeds[i] in seeds[:i]:
                    raise item.bad(f"seeds: {seeds[i]} again; remove one, and use repetitions: to "
                                   "repeat a seed")
        if repetitions * len(seeds) * cells > MOST_RUNS:
            raise self.top.bad(f"{repetitions * len(seeds) * cells} runs; at most {MOST_RUNS}: "
                               "name fewer levels, seeds or repetitions")
        return [(r + 1, seed) for r in range(repetitions) for seed in seeds]

    def report(self):
        hints = {}
        for version in (self.top.value, self.short):
            if "report" in version:
                for key, node in check_keys(version["report"], REPORT, "key of report:").items():
                    hints[key] = self.hint(key, node)
        return hints

    def expectations(self, node):
        """{levels: words}, as analysis/reporting/expect.py reads them."""
        if not isinstance(node.value, dict) or not node.value:
            raise node.bad(f"expect: is {node.kind}, must be a mapping {{FACTOR=LEVEL,..: WORD}}")
        factors = {name: list(levels) + list(self.dropped.get(name, ()))
                   for name, levels in self.factors.items()}
        for levels, words in node.value.items():
            if expect.levels_of(levels, factors) is None:
                raise words.bad(f"expect: {show(levels)} are no levels; write FACTOR=LEVEL,.. with "
                                f"the factors {', '.join(factors)}")
            if not isinstance(words.value, str) or not expect.words_of(words.value):
                raise unknown(words, "expect: word", expect.EVERY)
        return {levels: words.value for levels, words in node.value.items()}

    def hint(self, key, node):
        if key == "expect":
            return self.expectations(node)
        if key == "scaling":
            if node.value not in ("strong", "weak"):
                raise node.bad(f"scaling: {command.text_shown(node)} must be strong or weak")
            return node.value
        if key == "target_accuracy":
            found = re.fullmatch(r"0?\.\d{1,9}", str(node.value), re.ASCII)
            if not found or float(node.value) == 0:
                raise node.bad(f"target_accuracy: {command.text_shown(node)} must be a number "
                               "between 0 and 1, e.g. 0.8")
            return float(node.value)
        if key == "target_loss":
            if not re.fullmatch(r"\d{0,6}\.?\d{1,9}", str(node.value), re.ASCII) or float(node.value) == 0:
                raise node.bad(f"target_loss: {command.text_shown(node)} must be a number above 0, e.g. 0.4")
            return float(node.value)
        items = node.value if key == "compare_within" and isinstance(node.value, list) else [node]
        for item in items:
            if item.value not in list(self.factors):  # it may be of any kind
                raise unknown(item, f"{key}: factor", self.factors)
        return node.value if key == "x" else [item.value for item in items]

    def claims(self, cells):
        """The claims, each of cells that the long version has."""
        found = claims.read(self.top)
        if not self.short:
            baseline = next(cell.levels for cell in cells if cell.baseline)
            claims.check(found, {name: list(levels) for name, levels in self.factors.items()},
                         [cell.levels for cell in cells], baseline, self.texts("source", []))
        return [claim for claim, _ in found]

    def doubt(self, cells, blocks, hints):
        """A line on what the design cannot decide; None: it can decide all. Claims are of the long version."""
        nodes = {}
        for version in (self.top.value, self.short):
            report = version["report"].value if "report" in version else {}
            nodes = report["expect"].value if "expect" in report else nodes
        factors = {name: list(levels) for name, levels in self.factors.items()}
        baseline = next(cell.levels for cell in cells if cell.baseline)
        found = [*doubts.of_expectations(nodes, factors, cells, baseline, hints.get("compare_within", []), blocks)]
        exact = all(cell.exact for cell in cells)  # then one run is its own interval
        found += [] if self.short or exact else doubts.of_claims(claims.read(self.top), blocks)
        return doubts.line(found, "short: " if self.short else "")

    def study(self, data, short):
        cells = self.cells()
        blocks, hints = self.blocks(len(cells)), self.report()
        return Study(
            name=os.path.splitext(os.path.basename(self.top.path))[0], path=self.top.path,
            text=data.decode("utf-8"), sha256=hashlib.sha256(data).hexdigest(), short=short,
            claim=self.claim(), source=self.texts("source", []),
            factors={name: list(levels) for name, levels in self.factors.items()},
            design=self.choice("design", DESIGNS, "grid"),
            baseline=next(cell.id for cell in cells if cell.baseline),
            blocks=blocks, cells=cells,
            retries=self.number("retries", 0, 100, 0), timeout_s=self.timeout(),
            order_seed=self.number("order_seed", 0, LARGEST_SEED, 1), report=hints,
            claims=self.claims(cells), doubt=self.doubt(cells, blocks, hints), tune=tune.read(self, cells, blocks))
