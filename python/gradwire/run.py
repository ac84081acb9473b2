"""python -m gradwire.run -n 2 train.py ..: ranks of Python, by the mpiexec of libgradwire's MPI library.

Before `--`, more options of that mpiexec: python -m gradwire.run -n 4 -hosts a,b -- train.py .."""

import os
import sys

from gradwire.library import Error, first_line, location, mpi_version, mpiexec

USAGE = "usage: python -m gradwire.run -n RANKS [OPTION OF MPIEXEC .. --] SCRIPT [WORD ..]"


def command(words):
    """That which these words ask for."""
    options, script = words[:2], words[2:]
    if "--" in script and script[0].startswith("-"):
        end = words.index("--")
        options, script = words[:end], words[end + 1:]
    if len(options) < 2 or options[0] != "-n" or not options[1].isdecimal() or int(options[1]) == 0 or not script:
        raise Error(USAGE)
    path = mpiexec()
    if path is None:
        raise Error(f"{location()} came without an mpiexec: start the ranks by that of {first_line(mpi_version())}: "
                    f"mpiexec {' '.join(options)} {sys.executable} {' '.join(script)}")
    return [path, *options, sys.executable, *script]


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(USAGE)
        sys.exit(0)
    try:
        words = command(sys.argv[1:])
    except Error as error:
        print(f"gradwire.run: {error}", file=sys.stderr)
        sys.exit(2)
    os.execv(words[0], words)
