"""Starting MPI: under mpiexec, or where torchrun or another launcher of PyTorch's has started the ranks. These
are told who they are as MPICH's mpiexec would tell them (pmi.py)."""

import contextlib
import ctypes
import importlib.util
import multiprocessing
import os
import shlex
import socket
import sys

from gradwire import pmi
from gradwire.library import Error, library, mpiexec, share_environment, start_mpi, world

MPI_LAUNCHERS = ("PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_store = None  # of this start of the ranks; kept, for others may still read from it


def start(words=""):
    """(rank, ranks): initializes MPI unless that was done, over the ranks that mpiexec or torchrun started.
    `words` as for Session: some of them need a higher thread level. From then on an uncaught exception on
    one rank ends the whole job, in a thread that a session belongs to as well."""
    among = None if initialized() else by_torch()
    if among is None:
        rank, ranks = start_mpi(words)
        if ranks == 1:
            check_alone()
        return rank, ranks
    rank, ranks = among
    if hasattr(library(), "ompi_mpi_comm_world"):
        raise Error(f"Open MPI cannot be started by torchrun: {instead(ranks)}")
    with environment(PMI_FD=pmi.join(*meet(rank, ranks), rank), PMI_RANK=rank, PMI_SIZE=ranks):
        try:
            return start_mpi(words)
        except Error:
            if not initialized() or size() > 1:
                raise
    raise Error("this MPI library does not learn from its launcher as MPICH does (PMI-1), and cannot be "
                f"started by torchrun: {instead(ranks)}")


def check_alone():
    """Refuses the only rank of MPI where PyTorch has several, or multiprocessing may have started several: each would
    train alone."""
    others = sys.modules["torch.distributed"].get_world_size() if grouped() else 1
    if others > 1:
        raise Error(f"MPI has 1 rank, and the process group of torch.distributed {others}: call init_process_group before "
                    "gradwire starts MPI, or leave both to gradwire.torch.init, under torchrun or mpiexec")
    if multiprocessing.parent_process() and not os.environ.get("WORLD_SIZE"):
        raise Error("MPI has 1 rank, and multiprocessing (torch.multiprocessing.spawn, say) has started this process: "
                    "where it has started others, each would train alone: call torch.distributed.init_process_group first, "
                    "by which they find each other, or use torchrun; or set WORLD_SIZE=1 if this one is to be alone")


def by_torch():
    """(rank, ranks) as PyTorch's launcher, or a process group that is there already, has them; None: there is
    neither, or mpiexec started the ranks. torchrun within a step of Slurm is the inner one of the two."""
    if "TORCHELASTIC_RUN_ID" not in os.environ and any(name in os.environ for name in MPI_LAUNCHERS):
        return None
    if grouped():
        dist = sys.modules["torch.distributed"]
        rank, ranks = dist.get_rank(), dist.get_world_size()
    elif (all(os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))
          and importlib.util.find_spec("torch")):
        try:
            rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        except ValueError:
            raise Error("RANK={RANK}, WORLD_SIZE={WORLD_SIZE}: must be two numbers, as torchrun gives them, or be "
                        "unset".format_map(os.environ)) from None
    else:
        return None
    return (rank, ranks) if ranks > 1 else None


def grouped():
    """Whether torch.distributed has its default group."""
    dist = sys.modules.get("torch.distributed")
    return bool(dist) and dist.is_available() and dist.is_initialized()


def meet(rank, ranks):
    """(host, port, token) of the server that rank 0 starts, told through PyTorch."""
    alone = os.environ.get("LOCAL_WORLD_SIZE") == str(ranks)
    said = [None]
    if rank == 0:
        said = [" ".join((pmi.host_key(), address(), *pmi.serve(ranks, alone)))]
    if grouped():
        sys.modules["torch.distributed"].broadcast_object_list(said)
    else:
        if rank == 0:
            store().set("server", said[0])
        said[0] = store().get("server").decode()
    host, where, *place = said[0].split()
    return "localhost" if host == pmi.host_key() else where, *place


def store():
    """The launcher's, for this start of the ranks: what those before a restart left is still in it."""
    global _store
    if _store is None:
        from torch.distributed import PrefixStore, rendezvous
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        _store = PrefixStore(f"gradwire/{start}", next(rendezvous("env://"))[0])
    return _store


def address():
    """Where other hosts reach this one: $MASTER_ADDR, the interface that Gloo is told to use, or what
    the host's name stands for."""
    if os.environ.get("MASTER_ADDR"):
        return os.environ["MASTER_ADDR"]
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        with contextlib.suppress(OSError):
            return of_interface(interface)
    return socket.gethostname()


def of_interface(name):
    """Its IPv4 address."""
    import fcntl
    import struct
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe, 0x8915, request)[20:24])  # SIOCGIFADDR


@contextlib.contextmanager
def environment(**told):
    """Variables for MPI_Init alone: a child process must not take itself for the rank."""
    before = {name: os.environ.get(name) for name in told}
    os.environ.update({name: str(value) for name, value in told.items()})
    share_environment()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        share_environment()


def initialized():
    flag = ctypes.c_int()
    library().MPI_Initialized(ctypes.byref(flag))
    return bool(flag.value)


def size():
    """Ranks of MPI_COMM_WORLD."""
    ranks = ctypes.c_int()
    library().MPI_Comm_size(world(), ctypes.byref(ranks))
    return ranks.value


def instead(ranks):
    """What starts this program by MPI."""
    return "start the ranks by " + shlex.join([mpiexec() or "mpiexec", "-n", str(ranks), *sys.orig_argv])
