"""`command:` of a spec or of a level: the program that the ranks of a cell run; `gradwire train` if there is none.

A command is words with places: {NAME} stands for a setting of the cell, and the runner fills those of
OWN. A program of gradwire takes its options as words. Any other one has them in the variable
GRADWIRE, where the library reads them."""

import os
import re
import shlex
from dataclasses import dataclass, replace

from ablation.lines import show

# What the runner fills in.
OWN = {"launcher": "what starts the ranks; before the first word if it is not given",
       "gradwire": "the path of the build's gradwire", "build": "the build's folder",
       "options": "the options, as words",
       "out": "the folder of the run", "seed": "its seed", "ranks": "the number of ranks"}
WHOLE = ("launcher", "options")  # these become several words
VARIABLE, LIBRARY = "GRADWIRE", "GRADWIRE_LIBRARY"
SIMULATED = {"train": "--train", "replay": "--profile"}  # the subcommand's word for `simulate`
PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Base:
    """A command. `words` begin with {launcher} or have it further on."""

    words: tuple = ("{launcher}", "{gradwire}", "train", "{options}")
    places: tuple = ()  # names of settings that stand in it
    line: int = 0  # of the spec

    @property
    def subcommand(self):
        """Of gradwire; None: another program."""
        program, *others = self.words[self.words.index("{launcher}") + 1:]
        return others[0] if program == "{gradwire}" else None

    @property
    def by_words(self):
        """Whether the options are words of the command, not in the variable."""
        return "{options}" in self.words

    def of(self, cell):
        """The command of a cell: where its ranks are simulated, `simulate` trains them, or plays the profile of `replay`."""
        if not cell.simulated or self.subcommand == "simulate":
            return self
        at = self.words.index("{launcher}") + 3
        rest = [word for word in self.words[at:] if word != "{options}"]
        return replace(self, words=(*self.words[:at - 1], "simulate", SIMULATED[self.subcommand], *rest, "{options}"))

    def fill(self, cell, own):
        """The words for a cell. own: {place of OWN: text, or the words of WHOLE}."""
        given = {**own, **cell.places}
        return [filled for word in self.words for filled in (
            given[word[1:-1]] if word in ("{launcher}", "{options}") else
            [PLACE.sub(lambda found: given[found[1]] if found[1] else found[0][0], word)])]

    def arguments(self, cell):
        """The words between gradwire's subcommand and the options, for a check."""
        words = self.words[self.words.index("{launcher}") + 3:]
        return Base(tuple(word for word in words if word != "{options}")).fill(
            cell, {"gradwire": "gradwire", "build": "build", "out": "run", "seed": "1", "ranks": str(cell.ranks)})


def read(node):
    """The Base of a spec's `command:`, whose node this is; None: train."""
    if node is None:
        return Base()
    words = tuple(words_of(node))
    places = []
    for word in words:
        for found in PLACE.finditer(word):
            place = found[1]
            if found[0] in ("{{", "}}"):
                continue
            if place is None or not re.fullmatch(r"[a-z][a-z0-9-]*", place):
                raise node.bad(f"command: {show(word)}: a brace opens no place; write {{NAME}} for a setting, and "
                               "{{ or }} for a brace")
            if place in WHOLE and word != found[0]:
                raise node.bad(f"command: {show(word)}: {{{place}}} must be a word of its own; put spaces around it")
            places.append(place)
    for place in WHOLE:
        if places.count(place) > 1:
            raise node.bad(f"command: {{{place}}} again; remove one")
    if "launcher" not in places:
        words = ("{launcher}", *words)
    at = words.index("{launcher}") + 1
    if words[at:at + 1] == ("gradwire",):
        words = (*words[:at], "{gradwire}", *words[at + 1:])
    if words[at:] in ((), ("{gradwire}",)):
        raise node.bad("command: names no program of gradwire; write e.g. gradwire replay" if words[at:] else
                       "command: no program follows {launcher}; name one")
    base = Base(words, tuple(dict.fromkeys(place for place in places if place not in OWN)), node.line)
    if base.subcommand and not base.by_words:
        base = replace(base, words=(*words, "{options}"))
    return base


def words_of(node):
    items = node.value if isinstance(node.value, list) else [node]
    for item in items:
        if not isinstance(item.value, str) or not item.value.replace("\n", " ").isprintable():
            raise item.bad(f"command: is {item.kind}, must be a line, or a list of words")
    if isinstance(node.value, list):
        words = [item.value for item in items]
    else:
        try:
            words = shlex.split(node.value)
        except ValueError as error:
            raise node.bad(f"command: {str(error).lower()}; close the quotes") from error
    if not words:
        raise node.bad("command: is empty; name a program")
    return words


def variables(base, cell, options, build):
    """The variables that a run of the cell gets, beside the runner's own; None: unset. `options`: all
    that gradwire is told."""
    library = os.path.join(build, "libgradwire.so")
    given = dict(cell.environment)
    if not base.by_words:
        given[VARIABLE] = shlex.join(options)
    elif VARIABLE in os.environ:
        given[VARIABLE] = None  # it would win over the options of the spec
    if base.subcommand is None and os.path.exists(library):
        given.setdefault(LIBRARY, library)
    return given
