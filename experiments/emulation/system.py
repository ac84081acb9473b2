"""Commands, namespaces, and the state folder of a testbed."""

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import stat
import subprocess

from tool import BadInput

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LINK = "eth0"


class Failed(BadInput):
    """What went wrong, in one line, though the user did nothing wrong."""

    status = 1


def require_system():
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    if missing:
        raise BadInput(f"needs {' and '.join(missing)}: install iproute2")
    if os.geteuid() != 0:
        raise BadInput("needs root, to make network namespaces: run it with sudo")


def system(*words, check=True):
    done = subprocess.run(words, text=True, capture_output=True, check=False)
    if check and done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Failed(f"{shlex.join(words)}: {last}")
    return done


def folder_of(name):
    return os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/tmp", f"gradwire-testbed-{name}")


def space_of(name, host):
    return f"gw-{name}-{host}"  # host: 1 to N, "switch", or "probe"


def address_of(host):
    return f"10.77.0.{host}"


def rack_of(state, host):
    """1 to the number of racks."""
    return (host - 1) // (state["hosts"] // state["racks"]) + 1


def namespaces(name):
    """The existing namespaces of this testbed, even if it is half built."""
    mine = re.compile(rf"gw-{re.escape(name)}-(switch|probe|\d+)")
    words = (line.split()[0] for line in system("ip", "netns", "list").stdout.splitlines() if line)
    return sorted(word for word in words if mine.fullmatch(word))


def processes(name):
    pids = set()
    for space in namespaces(name):
        done = system("ip", "netns", "pids", space, check=False)  # fails in a half-built one
        pids |= {int(word) for word in done.stdout.split()}
    return pids - {os.getpid()}


@contextlib.contextmanager
def locked(folder):
    """Locks the state folder, and makes it if necessary. `down` removes it, so after waiting for
    the lock the folder must still be the one of that name."""
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BadInput(f"{folder}: {error.strerror}: not a folder of the testbed") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            own = os.fstat(fd)
            if own.st_uid != os.geteuid() or stat.S_IMODE(own.st_mode) & 0o022:
                raise BadInput(f"{folder}: others can write there: remove it")
            if os.path.exists(folder) and os.path.samestat(os.lstat(folder), own):
                yield
                return
        finally:
            os.close(fd)


def load(name):
    """The state that `up` wrote at its end; None: the testbed is not up, or incomplete."""
    try:
        folder = os.lstat(folder_of(name))
        with open(os.path.join(folder_of(name), "state.json"), encoding="utf-8") as file:
            state = json.load(file)
    except (OSError, ValueError):
        return None
    if folder.st_uid != os.geteuid() or len(namespaces(name)) != state["hosts"] + 1:
        return None
    return state


def write(folder, name, text, mode=0o600):
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path + ".new", mode)
    os.replace(path + ".new", path)


def standing(name):
    state = load(name)
    if not state:
        raise BadInput(f"{name} is not up: `testbed up` first")
    return state


def slow_text(state):
    """HOST:FRACTION,.. of the slow hosts."""
    return ",".join(f"{host}:{part:g}" for host, part in state.get("slow", {}).items())


def rate_text(state):
    """The hosts' rates in Mbit/s, in the notation of `--rate`."""
    def pair(up, down):
        return f"{up / 1e6:g}" + (f"/{down / 1e6:g}" if down != up else "")
    words = [pair(*rates) for rates in state["rates"]]
    return (words[0] if len(set(words)) == 1 else ",".join(words)) + " Mbit/s"
