"""Starting the ranks: MPI, and over it PyTorch's process group."""

import contextlib
import os
import socket

import numpy as np
import torch.distributed as dist

from gradwire.library import Error, start
from gradwire.session import Session

WIDEST = 256  # characters of what is broadcast


def init(words="", gloo=True):
    """(rank, ranks). mpiexec started the ranks; MPI is initialized unless it was. `words` as for hook
    or Session: some of them need a higher thread level. gloo: also torch.distributed's default group,
    which meets at a port that rank 0 picks: DistributedDataParallel needs it, Session does not."""
    rank, ranks = start(words)
    if gloo and not dist.is_initialized():
        if not dist.is_available() or not dist.is_gloo_available():
            raise Error("this PyTorch has no Gloo (torch.distributed): use gradwire.torch.Session, "
                        "which needs no process group")
        if by_launcher(ranks):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", store=meet(rank, ranks), rank=rank, world_size=ranks)
    return rank, ranks


def by_launcher(ranks):
    """Whether the launcher put all ranks on this host."""
    local = os.environ.get("MPI_LOCALNRANKS") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    return local == str(ranks)


def meet(rank, ranks):
    """A TCPStore; rank 0 serves it, and tells the others where."""
    if rank == 0:
        store = dist.TCPStore("localhost", 0, ranks, is_master=True, wait_for_workers=False)
        broadcast(f"{host_key()} {address()} {store.port}", rank)
        return store
    host, where, port = broadcast(None, rank).split()
    return dist.TCPStore("localhost" if host == host_key() else where, int(port), ranks,
                         is_master=False)


def host_key():
    """The same for processes that share a loopback interface."""
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}:{os.stat('/proc/self/ns/net').st_ino}"
    return socket.gethostname()


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


def broadcast(text, rank):
    """Rank 0's text on all ranks. By the parameters of a session that is opened for it: they go from
    rank 0 to all."""
    characters = np.zeros(WIDEST, np.float32)
    if rank == 0:
        raw = text.encode()
        characters[:len(raw)] = np.frombuffer(raw, np.uint8)
    words = os.environ.pop("GRADWIRE", None)  # they belong to the run
    try:
        with Session() as session:
            session.tensor("text", characters)
            session.open()
    finally:
        if words is not None:
            os.environ["GRADWIRE"] = words
    return bytes(characters.astype(np.uint8)).rstrip(b"\0").decode()
