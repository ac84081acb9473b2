"""run and exec: commands on the hosts."""

import contextlib
import os
import re
import shutil
import signal
import sys
import time

from emulation.groups import group_of, own_group, put
from emulation.system import Failed, LINK, ROOT, folder_of, slow_text, space_of, standing, system
import processes
from tool import BadInput

HEEDED = {signal.SIGTERM, signal.SIGINT}
SI_KERNEL = 128  # the terminal's Ctrl-C, which the launcher gets, too
RANK = re.compile(rb"(?:^|\0)(?:PMI_RANK|PMIX_RANK|OMPI_COMM_WORLD_RANK)=")
LOOK_S, GRACE_S, START_S = 1, 10, 60  # the last: until the first rank is there


def environment(state, per_host):
    """GRADWIRE_*: for run.json; ranks are placed `per_host` at a time. UCX: no transport that bypasses the
    link, and by default no handshake before a long message, since it would queue behind the data."""
    os.environ.setdefault("UCX_RNDV_THRESH", "inf")
    if slow_text(state):
        os.environ["GRADWIRE_SLOW_HOSTS"] = slow_text(state)
    rates = [f"{up}/{down}" for up, down in state["rates"]]
    if set(rates) != {f"{state['rate_bits_per_s']}/{state['rate_bits_per_s']}"}:
        os.environ["GRADWIRE_HOST_RATES"] = ",".join(rates)
    if state["racks"] > 1:
        os.environ["GRADWIRE_RACKS"] = f"{state['racks']}x{state['uplink_bits_per_s']}x{per_host}"
    os.environ["GRADWIRE_LINK_PIECE"] = f"{state['segments']}x{state['mtu']}"
    return dict(os.environ, GRADWIRE_LINK_RATE=str(state["rate_bits_per_s"]),
                GRADWIRE_TESTBED=str(state["hosts"]), UCX_TLS="tcp,self", UCX_NET_DEVICES=LINK)


def find_launcher(wanted):
    """(path, what it says of itself)"""
    own = os.path.join(ROOT, "build/release/mpiexec")  # it fits the MPI of this build
    names = [wanted or own] if wanted or os.path.exists(own) else ["mpiexec.hydra", "mpiexec"]
    for name in names:
        path = shutil.which(name)
        about = system(path, "--version", check=False).stdout if path else ""
        if re.search("HYDRA|OpenRTE", about):  # Open MPI 5's ranks take hosts of one name for one node, and fail
            return path, about
    raise BadInput(f"run: neither Hydra (MPICH's mpiexec) nor Open MPI 4's among {', '.join(names)}: install "
                   "mpich or name one by --mpiexec")


def find_command(words):
    """The command with its absolute path; `gradwire` is this tree's, if built."""
    own = os.path.join(ROOT, "build/release/gradwire")
    first = own if words[0] == "gradwire" and os.path.exists(own) else words[0]
    if not shutil.which(first):
        raise BadInput(f"{first}: no such program")
    return [os.path.abspath(shutil.which(first)), *words[1:]]


def enter(state, host, words, per_host=1):
    """(words, environment) of a command on a host, whose share of a core is this process's from now on."""
    sys.stdout.flush()
    if str(host) in state.get("slow", {}):
        os.environ["GRADWIRE_TESTBED_GROUP"] = own_group()
        put(f"{group_of(state['name'], host)}/cgroup.procs", str(os.getpid()))
    return ["ip", "netns", "exec", space_of(state["name"], host), *words], environment(state, per_host)


def is_rank(pid):
    """Whether a launcher has told the process its rank, or a parent of it."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return bool(RANK.search(file.read()))
    return False


def watch(launcher):
    """The launcher's exit status. Where a link has gone down it does not hear that its ranks have ended, and would
    wait forever."""
    ranks, until_s = [], time.monotonic() + START_S
    while launcher.poll() is None:
        told = signal.sigtimedwait({*HEEDED, signal.SIGCHLD}, LOOK_S)
        if told and told.si_signo in HEEDED and told.si_code != SI_KERNEL:
            launcher.send_signal(told.si_signo)
        if not any(map(is_rank, ranks)):
            ranks = [pid for pid in processes.tree([launcher.pid], processes.process_table()) if is_rank(pid)]
        until_s = time.monotonic() + GRACE_S if ranks else until_s
        if time.monotonic() > until_s:
            processes.end([launcher])
            raise Failed("run: no rank is left, and the launcher has not heard of that (is a link down?): it is ended")
    if launcher.returncode < 0:  # end as it did
        with contextlib.suppress(OSError):  # SIGKILL has no other way
            signal.signal(-launcher.returncode, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)
        os.kill(os.getpid(), -launcher.returncode)
    return launcher.returncode


def run(options):
    """mpiexec itself runs on host 1, and listens only there."""
    state, folder = standing(options.name), folder_of(options.name)
    each, hosts = str(options.per_host), os.path.join(folder, "hosts")
    agent = os.path.join(folder, "launcher")
    launcher, about = find_launcher(options.mpiexec)
    if "HYDRA" in about:
        words = ["-launcher", "ssh", "-launcher-exec", agent, "-iface", LINK, "-f", hosts, "-ppn", each]
    else:
        place = "node" if each == "1" else f"ppr:{each}:node"
        words = ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include",
                 LINK, "--hostfile", hosts, "--map-by", f"{place}:OVERSUBSCRIBE"]
    words, env = enter(state, 1, [launcher, *words, "-n", str(options.ranks or state["hosts"] * options.per_host),
                                  *find_command(options.command)], options.per_host)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*HEEDED, signal.SIGCHLD})
    return watch(processes.start(words, mask, env=env, stdin=None, start_new_session=False))


def execute(options):
    state = standing(options.name)
    if options.host > state["hosts"]:
        raise BadInput(f"exec: host {options.host}: {options.name} has hosts 1 to {state['hosts']}")
    words, env = enter(state, options.host, find_command(options.command))
    os.execvpe(words[0], words, env)
