"""A process with all its descendants. A launcher puts its ranks in sessions of their own, so
neither a process group nor a session has them all."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_S = 3  # between SIGTERM and SIGKILL

libc = ctypes.CDLL(None, use_errno=True)


def become_reaper():
    """Processes whose parent dies become this process's children, so that they can be found."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited SIG_IGN would hide their ends
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(words, mask, **more):
    """Starts a launcher, by default in a session of its own, so that this process decides what a
    terminal's Ctrl-C does. If this one is killed, the kernel sends the launcher SIGTERM, and that
    ends its ranks."""
    parent = os.getpid()

    def prepare():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    defaults = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    return subprocess.Popen(words, preexec_fn=prepare, **{**defaults, **more})


def process_table():
    """{pid: (parent, start time)}, including dead processes that are not reaped. The start time
    distinguishes a process from a later one with the same number."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            table[int(name)] = (int(fields[1]), fields[19])
    return table


def tree(pids, table):
    """{pid: start time} of these and their descendants."""
    found = {pid: table[pid][1] for pid in pids if pid in table}
    while more := {pid: begun for pid, (parent, begun) in table.items()
                   if parent in found and pid not in found}:
        found.update(more)
    return found


def adopted(processes, table):
    """Children of this process except `processes`, which it has started itself."""
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
    """Asks the launchers to end, which end their ranks; kills what is left of their trees after
    some seconds."""
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
    """Kills what a dead launcher has left, since it would disturb the next run."""
    table = process_table()
    while left := adopted(processes, table):
        send(tree(left, table), signal.SIGKILL)
        time.sleep(0.01)
        reap(left)
        table = process_table()
