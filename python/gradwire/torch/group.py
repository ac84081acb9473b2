"""Starting the ranks: MPI, and PyTorch's process group."""

import os

import numpy as np
import torch.distributed as dist

from gradwire.launch import address, by_torch, start, store
from gradwire.library import Error
from gradwire.pmi import host_key
from gradwire.session import Session

WIDEST = 256  # characters of what is broadcast


def init(words="", gloo=True):
    """(rank, ranks). mpiexec or torchrun started the ranks; MPI is initialized unless it was. `words` as for
    hook or Session: some of them need a higher thread level. gloo: also torch.distributed's default group,
    unless there is one: DistributedDataParallel needs it, Session does not. Sets RANK, WORLD_SIZE and
    LOCAL_RANK where a launcher has not, by which accelerate, Lightning and their like know their rank."""
    rank, ranks = start(words)
    if gloo and not dist.is_initialized():
        if not dist.is_available() or not dist.is_gloo_available():
            raise Error("this PyTorch has no Gloo (torch.distributed): use gradwire.torch.Session, "
                        "which needs no process group")
        if by_launcher(ranks):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", store=store() if by_torch() else meet(rank, ranks), rank=rank,
                                world_size=ranks)
    os.environ.setdefault("RANK", str(rank))
    os.environ.setdefault("WORLD_SIZE", str(ranks))
    local = os.environ.get("MPI_LOCALRANKID") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK")
    os.environ.setdefault("LOCAL_RANK", local or str(rank))
    return rank, ranks


def by_launcher(ranks):
    """Whether the launcher put all ranks on this host."""
    names = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE")
    return any(os.environ.get(name) == str(ranks) for name in names)


def meet(rank, ranks):
    """A TCPStore; rank 0 serves it, and tells the others where."""
    if rank == 0:
        store = dist.TCPStore("localhost", 0, ranks, is_master=True, wait_for_workers=False)
        broadcast(f"{host_key()} {address()} {store.port}", rank)
        return store
    host, where, port = broadcast(None, rank).split()
    return dist.TCPStore("localhost" if host == host_key() else where, int(port), ranks,
                         is_master=False)


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
