"""What all modules here may use: the mistake of a user, text that is safe on a terminal, modules that load late.
Python's own library only."""

import importlib.util
import re
import sys

# A terminal may take these for commands, or show a line in another order; a line ends at some.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class BadInput(Exception):
    """A mistake of the user's, in one line."""

    status = 2  # exit status


def plain(text):
    """The same as one line that is safe on a terminal."""
    return CONTROL.sub("?", text)


def later(*names):
    """These modules, each loaded when something of it is first used: help and mistakes in the command
    need not wait for what they import."""
    return [_later(name) for name in names]


def _later(name):
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
