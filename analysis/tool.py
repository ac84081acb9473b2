"""What the tools share: the form of their help, the packages they need, the exit on bad input."""

import argparse
import importlib.util
import locale
import os
import re
import shutil
import subprocess
import sys

from reporting.base import CONTROL, BadInput, later, plain, write

__all__ = ["REPORT_NEEDS", "BadInput", "Parser", "advice", "aligned", "call", "check_names", "has_utf8", "interpreter", "later",
           "need", "plain", "say", "write"]
REPORT_NEEDS = ("matplotlib", "numpy", "pandas", "scipy")
SYSTEM = "/usr/bin/python3"  # which the packages of a distribution belong to
PIP = {"yaml": "pyyaml"}  # module -> package, where the names differ
PIP_ONLY = {"tensorboard"}  # which Debian does not have
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


def lacks(*modules):
    """Those that this interpreter lacks."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def in_environment():
    """Whether this interpreter belongs to a virtual environment, venv's or conda's."""
    return sys.prefix != sys.base_prefix or os.environ.get("CONDA_PREFIX") == sys.prefix


def interpreter(*modules):
    """What runs a tool that needs these: the interpreter that was started, by default the first in PATH, so that of an
    active environment. Where it lacks one and is no environment's, the distribution's, if that has all. None: neither."""
    if not lacks(*modules):
        return sys.executable
    if in_environment() or os.path.realpath(sys.executable) == os.path.realpath(SYSTEM):
        return None
    ask = f"import importlib.util as u; exit(not all(map(u.find_spec, {modules!r})))"
    done = subprocess.run([SYSTEM, "-c", ask], stderr=subprocess.DEVNULL, check=False) if os.path.exists(SYSTEM) else None
    return SYSTEM if done and done.returncode == 0 else None


def advice(*modules):
    """What is lacking where there is no interpreter(), with the command that installs it."""
    lacking = lacks(*modules)
    if shutil.which("apt-get") and not in_environment() and not PIP_ONLY & set(lacking):
        how = f"apt-get install {' '.join(f'python3-{name}' for name in lacking)}"
        how += "" if os.geteuid() == 0 else " (as root)"
    else:
        how = f"{sys.executable} -m pip install {' '.join(PIP.get(name, name) for name in lacking)}"
    return f"{sys.executable} (Python {sys.version.split()[0]}) has no module {', '.join(lacking)}: {how}"


def need(*modules, also=()):
    """Goes on under the interpreter that has `modules`; ends the program with one line and status 2 if there is none.
    The line also names the packages that are needed later."""
    by = interpreter(*modules)
    if by is None:
        print(f"{os.path.basename(sys.argv[0])}: {advice(*modules, *also)}", file=sys.stderr)
        sys.exit(2)
    if by != sys.executable:
        os.execv(by, [by, *sys.orig_argv[1:]])


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
