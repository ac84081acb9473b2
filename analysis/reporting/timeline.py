"""The events of a trace.json, as `gradwire train --trace` writes it, one at a time. Python's own library only."""

import contextlib
import json
import os

from .shape import Bad
from .base import BadInput

BEGIN = '{"traceEvents":['


@contextlib.contextmanager
def opened(path, mode="r"):
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe would block
            raise BadInput(f"{path}: not a regular file")
        with open(path, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
    except Bad as error:
        raise BadInput(f"{path}: {error}: no batches.csv, or a damaged one") from error
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8: {error.reason}") from error


# ---- the file ----

def unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def whole(text):
    if len(text) > 19:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def no_number(name):
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_int=whole, parse_constant=no_number)


def read_trace(path, file, on_event):
    """Calls on_event(event, line) for each event, so that memory does not grow with the file;
    returns otherData."""
    def refuse(why):
        raise BadInput(f"{path}: line {line}: {why}: no trace, or a damaged one")

    def decode(text):
        try:
            return DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            return refuse(getattr(error, "msg", error))

    line, comma = 1, False
    if file.readline().strip() != BEGIN:
        refuse(f"does not begin with {BEGIN}")
    for line, text in enumerate(file, 2):
        text = text.strip()
        if text.startswith("]") and not comma:
            other = get(decode(BEGIN + text + file.read()), "otherData", dict)
            if (get(other, "format", str), get(other, "version", int)) != ("gradwire trace", 2):
                refuse("otherData is not gradwire's, or of another version than 2")
            return other
        if line > 2 and not comma:
            refuse("',' is missing before it")
        comma = text.endswith(",")
        event = decode(text[:-1] if comma else text)
        if not isinstance(event, dict):
            refuse("an event is not an object")
        on_event(event, line)
    return refuse("the end is missing")


# ---- the fields of an event ----

def get(mapping, key, kind):
    """The value; None if there is none of this kind."""
    value = mapping.get(key) if isinstance(mapping, dict) else None
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def nanoseconds(event, key):
    """Microseconds with three decimals, as nanoseconds; None: not valid."""
    us = get(event, key, (int, float))
    valid = us is not None and 0 <= us * 1000 <= 2**53 and abs(us * 1000 - round(us * 1000)) <= 0.25
    return round(us * 1000) if valid else None
