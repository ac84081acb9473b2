"""What all modules here may use: the mistake of a user, text that is safe on a terminal, figures with the digits that
decide, modules that load late, files that a user names. Python's own library only."""

import contextlib
import errno
import importlib.util
import os
import re
import secrets
import stat
import sys

# A terminal may take these for commands, or show a line in another order; a line ends at some. The program has the
# same (src/base/text.c).
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class BadInput(Exception):
    """A mistake of the user's, in one line."""

    status = 2  # exit status


def plain(text):
    """The same as one line that is safe on a terminal."""
    return CONTROL.sub("?", text)


def side(value, bound):
    return value > bound, value < bound


def telling(value, bounds, write):
    """write(0), or as many digits more, write(1) and so on, as it takes for the text to lie on that side of each bound
    on which the value does: a printed figure must not contradict the verdict on it."""
    texts = [write(more) for more in range(13)]
    return next((text for text in texts if all(side(float(text.replace(",", "")), bound) == side(value, bound)
                                               for bound in bounds)), texts[0])


def number(value, *bounds):
    """Three digits: 1.91, 12,300; more where a bound asks for them."""
    return telling(value, bounds, lambda more: f"{value:,.{more}f}" if abs(value) >= 1000 else f"{value:.{3 + more}g}")


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


def _direct(path):
    """A descriptor to write to at once: a device, a pipe, or this program's own output; None: a file is to be made."""
    try:
        of = os.stat(path)
    except FileNotFoundError:
        return None
    for own in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(of, os.fstat(own)):
                return os.dup(own)
    if not (stat.S_ISCHR(of.st_mode) or stat.S_ISFIFO(of.st_mode)):
        return None
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)  # a pipe that nobody reads would never open
    os.set_blocking(fd, True)
    return fd


def write(path, data):
    """Writes the bytes to a file that a user names, as the program does (src/base/file.h): whole or not at all, to what
    symbolic links lead to; a device, a pipe or this program's own output is written to, not renamed over."""
    new = None
    try:
        fd = _direct(path)
        target = os.path.realpath(path)
        if fd is None:
            if os.path.lexists(target) and not os.path.isfile(target):
                what = "a folder" if os.path.isdir(target) else "neither a file nor a pipe"
                raise BadInput(f"{path}: {what}: name a file")
            if os.path.lexists(target) and not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, "Permission denied")
            folder, name = os.path.split(target)
            new = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        if new:
            os.replace(new, target)
    except OSError as error:
        if new:
            with contextlib.suppress(OSError):
                os.remove(new)
        unread = error.errno == errno.ENXIO
        raise BadInput(f"{path}: nothing reads this pipe: start what does" if unread else
                       f"{path}: {error.strerror}: name another place") from error
