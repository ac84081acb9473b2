"""What the tools share: the form of their help, the packages they need, the exit on bad input."""

import argparse
import importlib.util
import locale
import os
import re
import sys

from reporting.base import CONTROL, BadInput, later, plain, write

__all__ = ["BadInput", "Parser", "aligned", "call", "check_names", "has_utf8", "later", "need", "plain", "say", "write"]
COLOUR = re.compile("(\033\\[[0-9]{1,2}m)")  # as show has them


def check_names(words):
    """BadInput if one has a control character: it would be a command to a terminal, or in a script that
    it gets into."""
    for word in words:
        shown = "".join(ascii(c)[1:-1] if CONTROL.match(c) and c < "\ud800" else c for c in word)
        if shown != word:
            raise BadInput(f"'{shown}' contains a control character: choose a name without")


class Parser(argparse.ArgumentParser):
    """The command line of a tool whose __doc__ begins with "gradwire NAME: what it does". Its help has
    the form of gradwire's own commands; a mistake of the user's raises BadInput."""

    takes_command = False  # whose words are any; the others have to be checked by check_names()

    def __init__(self, doc="", **more):
        self.title, _, notes = doc.partition("\n")
        if doc:
            more = {"prog": self.title.partition(":")[0], "epilog": notes.strip(), **more}
        super().__init__(formatter_class=Form, add_help=False, **more)
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)

    def format_help(self):
        return (self.title and f"{self.title}\n\n") + super().format_help()

    def parse_known_args(self, args=None, namespace=None):  # all others end in this
        check_names([] if self.takes_command else sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message):
        raise BadInput(f"{message} (--help tells more)")


class Form(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog):
        super().__init__(prog, max_help_position=37, width=100)


def need(*modules):
    """Ends the program with one line and status 2 if this interpreter lacks one of `modules`."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    if lacking:
        script = os.path.basename(sys.argv[0])
        print(f"{script}: {sys.executable} (Python {sys.version.split()[0]}) has no module "
              f"{', '.join(lacking)}: install what is missing for it, or run {sys.argv[0]} by an "
              "interpreter that has it (/usr/bin/python3 with the python3-* of packages.txt)",
              file=sys.stderr)
        sys.exit(2)


def say(text, colours=False, file=None):
    """Prints lines. What a run's folder holds may come from anywhere, so nothing in them commands the terminal, but
    for the tool's own `colours`."""
    def safe(line):
        parts = COLOUR.split(line) if colours else [line]
        return "".join(part if i % 2 else plain(part) for i, part in enumerate(parts))
    print("\n".join(map(safe, text.split("\n"))), file=file)


def has_utf8():
    """Whether the environment's locale has UTF-8. One that is not installed is C, as for Python itself."""
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        return False
    return locale.nl_langinfo(locale.CODESET) == "UTF-8"


def aligned(rows, pad=str.ljust):
    """Lines of a table of texts: the first column is padded on the right, the others by `pad`."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([row[0].ljust(widths[0]), *map(pad, row[1:], widths[1:])]).rstrip()
            for row in rows]


def call(name, main):
    """Ends the program with the status that main() returns, on bad input with one line and 2. On a
    fault of the program's that no reader of input has caught: one line, and 3. Letters that the
    terminal's encoding lacks are printed as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main()
    except BadInput as error:
        print(f"{name}: {plain(str(error))}", file=sys.stderr)
        status = error.status
    except (MemoryError, RecursionError) as error:
        said = plain(str(error) or "out of memory")
        print(f"{name}: a fault of the program, {type(error).__name__}: {said}", file=sys.stderr)
        status = 3
    sys.exit(status)
