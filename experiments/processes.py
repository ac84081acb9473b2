"""A process and all that comes of it. A launcher puts its ranks in sessions of their own, so neither a
group nor a session has them all."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_S = 3  # between asking processes to end and making them

libc = ctypes.CDLL(None, use_errno=True)


def become_reaper():
    """Processes whose parent dies become this process's children, so that they can be found."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who inherits that it is ignored hears of no end
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(words, mask, **more):
    """In a session of its own: a terminal's Ctrl-C is this process's to pass on. If this one is
    killed, the kernel tells the launcher to end, and that ends its ranks."""
    parent = os.getpid()

    def prepare():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True,
                            preexec_fn=prepare, **more)


def process_table():
    """pid -> (parent, start time), also of what is dead and not yet reaped: the start time tells a
    process from a later one of the same number."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:  # gone meanwhile
                continue
            table[int(name)] = (int(fields[1]), fields[19])
    return table


def tree(pids, table):
    """{pid: start time} of these and their descendants."""
    found = {pid: table[pid][1] for pid in pids if pid in table}
    grown = True
    while grown:
        more = {pid: begun for pid, (parent, begun) in table.items()
                if parent in found and pid not in found}
        found.update(more)
        grown = bool(more)
    return found


def adopted(processes, table):
    """Children of this process but for `processes`, which it has started."""
    own = {process.pid for process in processes}
    return [pid for pid, (parent, _) in table.items() if parent == os.getpid() and pid not in own]


def reap(pids):
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(processes, grace_s=GRACE_S):
    """The launchers are asked to end, which end their ranks; after some seconds all that is left of
    their trees is made to."""
    roots = [process.pid for process in processes if process.poll() is None]
    known = tree(roots, process_table())
    send(roots, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while known:
        if time.monotonic() > until:
            send(known, signal.SIGKILL)
        time.sleep(0.02)
        for process in processes:
            process.poll()
        reap(set(known) - set(roots))
        table = process_table()
        known.update(tree(known, table))
        known = {pid: begun for pid, begun in known.items()
                 if table.get(pid, (0, None))[1] == begun}
    for process in processes:
        process.wait()


def sweep(processes):
    """Ends what a launcher that is gone has left: it would disturb the next run."""
    table = process_table()
    while left := adopted(processes, table):
        send(tree(left, table), signal.SIGKILL)
        time.sleep(0.01)
        reap(left)
        table = process_table()
