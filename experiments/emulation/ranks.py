"""run and exec: commands on the hosts."""

import os
import shutil
import sys

from emulation.groups import group_of, own_group, put
from emulation.system import LINK, ROOT, folder_of, slow_text, space_of, standing, system
from tool import BadInput


def environment(state):
    """GRADWIRE_*: for run.json. UCX: no transport that bypasses the link, and by default no
    handshake before a long message, since it would queue behind the data."""
    os.environ.setdefault("UCX_RNDV_THRESH", "inf")
    if slow_text(state):
        os.environ["GRADWIRE_SLOW_HOSTS"] = slow_text(state)
    rates = [f"{up}/{down}" for up, down in state["rates"]]
    if set(rates) != {f"{state['rate_bits_per_s']}/{state['rate_bits_per_s']}"}:
        os.environ["GRADWIRE_HOST_RATES"] = ",".join(rates)
    os.environ["GRADWIRE_LINK_PIECE"] = f"{state['segments']}x{state['mtu']}"
    return dict(os.environ, GRADWIRE_LINK_RATE=str(state["rate_bits_per_s"]),
                GRADWIRE_TESTBED=str(state["hosts"]), UCX_TLS="tcp,self", UCX_NET_DEVICES=LINK)


def find_hydra(wanted):
    own = os.path.join(ROOT, "build/release/mpiexec")  # it fits the MPI of this build
    names = [wanted or own] if wanted or os.path.exists(own) else ["mpiexec.hydra", "mpiexec"]
    for name in names:
        path = shutil.which(name)
        if path and "HYDRA" in system(path, "--version", check=False).stdout:
            return path
    raise BadInput(f"run: no Hydra (MPICH's mpiexec) among {', '.join(names)}: install mpich or "
                  "name it by --mpiexec")


def find_command(words):
    """The command with its absolute path; `gradwire` is this tree's, if built."""
    own = os.path.join(ROOT, "build/release/gradwire")
    first = own if words[0] == "gradwire" and os.path.exists(own) else words[0]
    if not shutil.which(first):
        raise BadInput(f"{first}: no such program")
    return [os.path.abspath(shutil.which(first)), *words[1:]]


def enter(state, host, words):
    sys.stdout.flush()
    if str(host) in state.get("slow", {}):
        os.environ["GRADWIRE_TESTBED_GROUP"] = own_group()
        put(f"{group_of(state['name'], host)}/cgroup.procs", str(os.getpid()))
    os.execvpe("ip", ["ip", "netns", "exec", space_of(state["name"], host), *words],
               environment(state))


def run(options):
    """mpiexec itself runs on host 1, and listens only there."""
    state = standing(options.name)
    folder = folder_of(options.name)
    enter(state, 1, [find_hydra(options.mpiexec), "-launcher", "ssh", "-launcher-exec",
                     os.path.join(folder, "launcher"), "-iface", LINK, "-f",
                     os.path.join(folder, "hosts"), "-ppn", str(options.per_host), "-n",
                     str(options.ranks or state["hosts"] * options.per_host),
                     *find_command(options.command)])


def execute(options):
    state = standing(options.name)
    if options.host > state["hosts"]:
        raise BadInput(f"exec: host {options.host}: {options.name} has hosts 1 to {state['hosts']}")
    enter(state, options.host, find_command(options.command))
