"""YAML with the line numbers of its values. What is wrong with a spec is BadInput: FILE:LINE: what is
wrong; what to do.

Scalars stay text: YAML would make a number of 1:30 and false of `off`. Anchors, aliases and tags
are refused: no spec needs them, and a few hundred bytes of aliases can expand beyond all memory."""

import difflib
import re
from dataclasses import dataclass

import yaml

from tool import BadInput

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML is built with it
MOST_BYTES, MOST_DEPTH = 256 << 10, 8
NULLS = {"", "~", "null", "Null", "NULL"}


@dataclass
class Node:
    path: str
    line: int  # of the key, for the value of a key
    value: object  # {key: Node}, [Node], text, or None

    @property
    def kind(self):
        if self.value in ({}, []):
            return "empty"
        return {dict: "a mapping", list: "a list", str: "text"}.get(type(self.value), "null")

    def bad(self, message):
        return BadInput(f"{self.path}:{self.line}: {message}")


def show(text):
    """A value in a message: quoted, short, on one line."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
    return f"'{text if len(text) <= 60 else text[:57] + '...'}'"


def nearest(word, names):
    """The advice for an unknown word."""
    names = list(names)
    close = []
    if not re.fullmatch(r"[\d.e+-]*", word):  # similar numbers are not typing mistakes
        close = difflib.get_close_matches(word.lower(), [n.lower() for n in names], 1, 0.5)
    if close:
        found = next(n for n in names if n.lower() == close[0])
        return f"did you mean {show(found)}?"
    most = 20
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"must be one of {', '.join(names[:most])}{more}"


class Composer:
    """Builds nodes from the parser's events one by one, so that a hostile file is refused at its
    first alias, before it is expanded."""

    def __init__(self, path, text):
        self.path = path
        self.events = yaml.parse(text, Loader=LOADER)
        self.line = 1

    def bad(self, message, line=None):
        return BadInput(f"{self.path}:{line or self.line}: {message}")

    def next(self):
        event = next(self.events)
        self.line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.bad("YAML anchors and aliases are not supported; write the value out")
        if getattr(event, "tag", None):
            raise self.bad(f"YAML tags are not supported; remove {show(event.tag)}")
        return event

    def document(self):
        self.next()
        if isinstance(self.next(), yaml.StreamEndEvent):
            raise self.bad("the file is empty; it must be a mapping that begins with claim:")
        root = self.node(self.next(), 0)
        self.next()
        if not isinstance(self.next(), yaml.StreamEndEvent):
            raise self.bad("a second document begins; a file is one spec")
        return root

    def node(self, event, depth):
        line = self.line
        if depth > MOST_DEPTH:
            raise self.bad(f"nested more than {MOST_DEPTH} deep; a spec needs less")
        if isinstance(event, yaml.ScalarEvent):
            null = not event.style and event.value in NULLS
            return Node(self.path, line, None if null else event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := self.next(), yaml.SequenceEndEvent):
                items.append(self.node(event, depth + 1))
            return Node(self.path, line, items)
        return Node(self.path, line, self.mapping(depth))

    def mapping(self, depth):
        entries = {}
        while not isinstance(event := self.next(), yaml.MappingEndEvent):
            line = self.line
            if not isinstance(event, yaml.ScalarEvent) or event.value == "":
                raise self.bad("a key must be a word; quote it if it contains brackets or braces")
            if event.value in entries:
                raise self.bad(f"key {show(event.value)} again; it stands on line "
                               f"{entries[event.value].line} already: remove one")
            node = self.node(self.next(), depth + 1)
            node.line = line
            entries[event.value] = node
        return entries


def text_of(path):
    """The file's bytes and text."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: cannot be read: {why}; name a YAML file") from error
    if len(data) > MOST_BYTES:
        raise BadInput(f"{path}:1: more than {MOST_BYTES >> 10} KiB; a spec is a short file")
    try:
        return data, data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[:error.start].count(b"\n") + 1
        raise BadInput(f"{path}:{line}: not UTF-8; save the file as UTF-8 text") from error


def load(path, text):
    """The tree of a YAML document; BadInput."""
    composer = Composer(path, text)
    try:
        return composer.document()
    except yaml.reader.ReaderError as error:
        line = text[:error.position].count("\n") + 1
        raise composer.bad("a control character; remove it", line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        line = min(mark.line, text.rstrip("\n").count("\n")) + 1 if mark else None  # not the end's
        raise composer.bad(f"not YAML: {' '.join(what.split())}; check indentation, brackets and "
                           "quotes", line) from error
    except (yaml.YAMLError, ValueError) as error:  # e.g. an escape outside Unicode, without libyaml
        raise composer.bad(f"not YAML: {' '.join(str(error).split())}; check the quotes") from error
