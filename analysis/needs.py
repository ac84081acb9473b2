"""What a script takes beside Python's own library, asked for before anything imports it."""

import importlib.util
import os
import sys


def need(*modules):
    """Ends the program with one line and status 2 where this interpreter has not all of `modules`."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    if lacking:
        script = os.path.basename(sys.argv[0])
        print(f"{script}: {sys.executable} (Python {sys.version.split()[0]}) has no module "
              f"{', '.join(lacking)}: install what is missing for it, or run {sys.argv[0]} by an "
              "interpreter that has it (/usr/bin/python3 with the python3-* of packages.txt)",
              file=sys.stderr)
        sys.exit(2)
