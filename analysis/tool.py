"""What the tools share: the form of their help, the packages they need, the exit on bad input."""

import argparse
import importlib.util
import os
import sys


class BadInput(Exception):
    """A mistake of the user's, in one line."""


class Parser(argparse.ArgumentParser):
    """The command line of a tool whose __doc__ begins with "gradwire NAME: what it does". Its help has
    the form of gradwire's own commands; a mistake of the user's raises `wrong`, an exception."""

    def __init__(self, wrong, doc="", **more):
        self.wrong, (self.title, _, notes) = wrong, doc.partition("\n")
        if doc:
            more = {"prog": self.title.partition(":")[0], "epilog": notes.strip(), **more}
        super().__init__(formatter_class=Form, add_help=False, **more)
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)

    def format_help(self):
        return (self.title and f"{self.title}\n\n") + super().format_help()

    def error(self, message):
        raise self.wrong(f"{message} (--help tells more)")


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


def run(name, main):
    """Ends the program with the status that main() returns, or on bad input with one line and 2."""
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
