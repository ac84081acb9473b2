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


def check_keys(node, keys, what):
    """The entries of a mapping with known keys."""
    if not isinstance(node.value, dict):
        raise node.bad(f"must have a {what}, is {node.kind}; write KEY: VALUE, with a KEY of "
                       f"{', '.join(keys)}")
    for key, value in node.value.items():
        if key not in keys:
            raise value.bad(f"unknown {what} {show(key)}; {nearest(key, keys)}")
    return node.value


def refuse_unsupported(where, text):
    """Walks over the document, with the line in `where`: a hostile file is refused at its first
    alias, before it is expanded."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=LOADER):
        where.line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise where.bad("YAML anchors and aliases are not supported; write the value out")
        if getattr(event, "tag", None):
            raise where.bad(f"YAML tags are not supported; remove {show(event.tag)}")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise where.bad(f"nested more than {MOST_DEPTH} deep; a spec needs less")
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise where.bad("a second document begins; a file is one spec")


def node_of(path, of):
    """The Node of one of PyYAML's."""
    node = Node(path, of.start_mark.line + 1, None)
    if isinstance(of, yaml.SequenceNode):
        node.value = [node_of(path, item) for item in of.value]
    elif isinstance(of, yaml.MappingNode):
        node.value = {}
        for key, value in of.value:
            at = Node(path, key.start_mark.line + 1, None)
            if not isinstance(key, yaml.ScalarNode) or key.value == "":
                raise at.bad("a key must be a word; quote it if it contains brackets or braces")
            if key.value in node.value:
                raise at.bad(f"key {show(key.value)} again; it stands on line "
                             f"{node.value[key.value].line} already: remove one")
            node.value[key.value] = node_of(path, value)
            node.value[key.value].line = at.line
    elif of.style or of.value not in NULLS:
        node.value = of.value
    return node


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
    where = Node(path, 1, None)
    try:
        refuse_unsupported(where, text)
        root = yaml.compose(text, Loader=LOADER)
    except yaml.reader.ReaderError as error:
        where.line = text[:error.position].count("\n") + 1
        raise where.bad("a control character; remove it") from error
    except yaml.MarkedYAMLError as error:
        what = " ".join(part for part in (error.context, error.problem) if part)
        if mark := error.problem_mark or error.context_mark:
            where.line = min(mark.line, text.rstrip("\n").count("\n")) + 1  # not the end's
        raise where.bad(f"not YAML: {' '.join(what.split())}; check indentation, brackets and "
                        "quotes") from error
    except (yaml.YAMLError, ValueError) as error:  # e.g. an escape outside Unicode, without libyaml
        raise where.bad(f"not YAML: {' '.join(str(error).split())}; check the quotes") from error
    if root is None:
        raise where.bad("the file is empty; it must be a mapping that begins with claim:")
    return node_of(path, root)
