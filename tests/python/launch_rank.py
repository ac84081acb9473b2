"""A rank of test_torchrun.py, which nothing but its environment makes one: launch_rank.py CASE [ARGUMENT].. prints
what the test looks at."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.environ["SOURCE"], "python"))

import numpy as np

import gradwire
from gradwire import launch, library, pmi


def served(folder, hosts):
    """(rank, ranks) by the server of `pmi`, its place told by a file; the ranks are on what `hosts` calls hosts."""
    rank, ranks = int(os.environ["RANK"]), len(hosts)
    os.makedirs(folder, exist_ok=True)
    place, hidden = os.path.join(folder, "place"), os.path.join(folder, ".place")
    if rank == 0:
        with open(hidden, "w", encoding="ascii") as file:
            file.write(" ".join(pmi.serve(ranks, local=True)))
        os.rename(hidden, place)
    while not os.path.exists(place):
        time.sleep(0.01)
    with open(place, encoding="ascii") as file:
        port, token = file.read().split()
    pmi.host_key, pmi.GRACE_S = lambda: hosts[rank], 0
    with launch.environment(PMI_FD=pmi.join("localhost", port, token, rank), PMI_RANK=rank, PMI_SIZE=ranks):
        return library.start_mpi("")


def exchange(words):
    """What a session's exact sum of 1, 2, 3 .. comes to."""
    with gradwire.Session(words) as session:
        x, grad = np.zeros(5, np.float32), np.full(5, session.rank + 1, np.float32)
        tensor = session.tensor("x", x)
        session.open()
        with session.batch(1):
            session.ready([tensor], [grad])
            session.finish()
            session.updated()
        return grad.tolist()


def case_served(folder, *hosts):
    """With a run's folder, that tells how many nodes MPI sees."""
    rank, ranks = served(folder, hosts)
    left = [name for name in os.environ if name.startswith("PMI_")]
    return rank, ranks, exchange(f"--comm allreduce:algo=ring --out {folder}/run"), left


def case_breaks(folder, how):
    rank, _ = served(folder, ["here"] * 2)
    if rank == 1 and how == "exit":
        os._exit(3)
    if rank == 1:
        library.abort()
    time.sleep(60)


def case_torch(how, words="--comm allreduce:algo=shm"):
    """nodes: those of torchrun are hosts, as far as ranks can tell."""
    import torch.distributed as dist

    import gradwire.torch
    if how == "nodes":
        pmi.host_key = lambda: os.environ["GROUP_RANK"]
    if how == "group":
        dist.init_process_group("gloo")
        rank, ranks = gradwire.start()
    else:
        rank, ranks = gradwire.torch.init()
    if how == "restart" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1:
        os._exit(3)
    import torch
    total = torch.ones(1)
    dist.all_reduce(total)
    return rank, ranks, dist.get_rank(), exchange(words), total.item()


def case_refused():
    try:
        gradwire.start()
    except gradwire.Error as error:
        return str(error)


if __name__ == "__main__":
    result = globals()["case_" + sys.argv[1]](*sys.argv[2:])
    os.write(1, (json.dumps(result) + "\n").encode())
