"""A rank of test_python.py: python_rank.py CASE [ARGUMENT].. prints what the test looks at."""

import json
import math
import multiprocessing
import os
import sys
import types

sys.path.insert(0, os.path.join(os.environ["SOURCE"], "python"))

import numpy as np

import gradwire

SHAPES, STEPS, RATE = {"a.weight": (6, 5), "a.bias": (5,), "b.weight": (40, 3)}, 6, 0.1


def gradients(rank, step):
    """A rank's means over its samples, 2 on rank 0 and 3 on others."""
    rng = np.random.default_rng([rank, step])
    return [rng.standard_normal(shape, np.float32) for shape in SHAPES.values()]


def samples(rank):
    return 2 if rank == 0 else 3


def initial(rank):
    rng = np.random.default_rng([7, rank])
    return [rng.standard_normal(shape, np.float32) for shape in SHAPES.values()]


def open_session(words, params):
    session = gradwire.Session(words)
    for group, (name, p) in enumerate(zip(SHAPES, params)):
        session.tensor(name, p, group=group // 2)
    return session.open()


def train(session, params, steps, memory=False):
    total = sum(map(samples, range(session.ranks)))
    owned = session.owned()
    for step in steps:
        with session.batch(samples(session.rank), total) as batch:
            session.phase(gradwire.Phase.BACKWARD)
            grads = gradients(session.rank, step)
            for tensor in reversed(range(len(grads))):
                if memory:
                    there = session.memory(tensor, gradwire.GRAD)
                    there[...], grads[tensor] = grads[tensor], there
                session.ready([tensor], None if memory else [grads[tensor]])
                session.poll()
            if session.finish():
                for tensor, piece in owned:
                    params[tensor].reshape(-1)[piece] -= RATE * grads[tensor].reshape(-1)[piece]
            session.updated()
            batch.loss = float(session.rank + step)
    session.settle()


def serial(ranks):
    """What exact strategies arrive at."""
    params, total = initial(0), sum(map(samples, range(ranks)))
    for step in range(STEPS):
        for p, *grads in zip(params, *(gradients(rank, step) for rank in range(ranks))):
            p -= RATE * sum(g * (samples(rank) / total) for rank, g in enumerate(grads))
    return params


def case_strategies(words):
    """Of each word list: how far from serial; this rank's parameters as text; resumed to the bit."""
    found = {}
    for one in json.loads(words):
        rank, ranks = gradwire.start(one)
        params = initial(rank)
        with open_session(one, params) as session:
            strategy = session.text("strategy")
            train(session, params, range(STEPS // 2))  # which settles, as the halves below do
            train(session, params, range(STEPS // 2, STEPS))
        half = initial(rank)
        with open_session(one, half) as session:
            train(session, half, range(STEPS // 2))
            state = session.save()
        with open_session(one, half) as session:
            session.load(state)
            train(session, half, range(STEPS // 2, STEPS))
        bits = b"".join(p.tobytes() for p in params)
        found[one] = {
            "strategy": strategy, "hash": hash_of(bits),
            "apart": max(float(abs(a - b).max()) for a, b in zip(params, serial(ranks))),
            "resumed": bits == b"".join(p.tobytes() for p in half)}
    return found


def case_saved(words):
    """A run that ends with what is saved of an exchange under way."""
    params = initial(0)
    with open_session(words, params) as session:
        train(session, params, range(STEPS))
        return len(session.save())


def case_memory(out):
    """Whether gradients in the library's memory come to what those of arrays do, watched or not."""
    words, found = "--comm iallreduce --compress topk:ratio=0.1", []
    for more in "", f"--compress-stats 1 --out {out}":
        here, there = initial(0), initial(0)
        with open_session(f"{words} {more}", here) as session:
            train(session, here, range(STEPS))
        with open_session(f"{words} {more}".replace(out, out + "2"), there) as session:
            train(session, there, range(STEPS), memory=True)
        found.append(all((a == b).all() for a, b in zip(here, there)))
    return {"same": found}


def case_parts(words):
    """Of each word list: this rank's bytes, how far its parts are from the means, and what each tensor's are. None has
    parameters, and gradients lie in the library's memory."""
    found = {}
    for one in json.loads(words):
        with gradwire.Session(one) as session:
            for group, (name, shape) in enumerate(SHAPES.items()):
                session.tensor(name, shape, group=group // 2)
            session.open()
            apart, sent, total = 0.0, [], sum(map(samples, range(session.ranks)))
            for step in range(STEPS):
                means = [sum(g * np.float32(samples(rank) / total) for rank, g in enumerate(of)) for of in
                         zip(*(gradients(rank, step) for rank in range(session.ranks)))]
                with session.batch(samples(session.rank), total):
                    for tensor, g in enumerate(gradients(session.rank, step)):
                        session.memory(tensor, gradwire.GRAD)[...] = g
                    session.ready(range(len(SHAPES)))
                    session.finish()
                    for tensor, piece in session.owned():
                        got = session.memory(tensor, gradwire.GRAD).reshape(-1)[piece]
                        apart = max(apart, float(abs(got - means[tensor].reshape(-1)[piece]).max()))
                    session.updated()
                sent.append(session.figure("wire_bytes"))
            found[one] = {"apart": apart, "sent": sent, "owned": [(t, p.start, p.stop) for t, p in session.owned()],
                          "memory": refusal(session.memory, 0), "epoch": refusal(session.epoch)}
    return found | {more: refusal(gradwire.Session, f"--parameters parts {more}") for more in
                    ("--comm ps", "--optimizer sgd", "--verify-every 1")}


def hash_of(bits):
    import zlib
    return zlib.crc32(bits)


def case_folder(out):
    """A run with a folder, on the library's own memory."""
    with gradwire.Session(f"--comm iallreduce --out {out}") as session:
        for group, (name, shape) in enumerate(SHAPES.items()):
            session.tensor(name, shape, group=group)
        session.open()
        values = [session.memory(i) for i in range(len(SHAPES))]
        zero = all((v == 0).all() for v in values)
        for step in range(3):
            with session.batch(4) as batch:
                for i, g in enumerate(gradients(session.rank, step)):
                    session.memory(i, gradwire.GRAD)[...] = g
                session.ready(range(len(SHAPES)))
                if session.finish():
                    for i, v in enumerate(values):
                        v -= session.memory(i, gradwire.GRAD)
                session.updated()
                batch.loss = 1.0
        session.epoch(test_loss=0.5, test_accuracy=0.25, validation_loss=0.75)
        session.epoch(test_loss=0.5)
        figures = [session.figure("wire_bytes"), session.figure("no_such_column")]
        told = session.text("mpi")
    return {"zero": zero, "wire": figures[0], "absent": math.isnan(figures[1]), "mpi": told,
            "moved": all((v != 0).any() for v in values)}


def refusal(function, *args, **more):
    try:
        function(*args, **more)
    except gradwire.Error as error:
        return str(error)
    return None


class Foreign:
    def py2f(self):
        return 0


def case_refusals():
    rank, _ = gradwire.start()
    found = {"words": refusal(gradwire.Session, "--comm nosuch"),
             "auto": refusal(gradwire.Session, "--compress auto"),
             "comm": refusal(gradwire.Session, "", comm=3)}
    stand_in = types.SimpleNamespace(Get_library_version=lambda: "Another MPI 1.0\n")
    sys.modules["mpi4py"] = types.SimpleNamespace(MPI=stand_in)
    found["mpi4py"] = refusal(gradwire.Session, "", comm=Foreign())
    params = initial(rank)
    session = open_session("", params)
    found["dtype"] = refusal(session.tensor, "x", np.zeros(3))
    found["strides"] = refusal(session.tensor, "x", np.zeros((3, 4), np.float32).T)
    found["size"] = refusal(session.ready, [0], [np.zeros(3, np.float32)])
    second = open_session("", initial(rank))
    found["first"] = refusal(session.close)
    found["words of a second"] = refusal(gradwire.Session, "--out runs/b")
    shared = np.array([rank, 7])
    session.share(shared)
    found["shared"], found["share"] = shared.tolist(), refusal(session.share, [7])
    found["mean"] = session.mean(float(rank), weight=2), second.mean([rank, 1.0]).tolist()
    second.close()
    session.close()
    session.close()
    found["closed"] = refusal(session.poll)
    found["load"] = load_of_garbage(initial(rank))
    return found


def load_of_garbage(params):
    session = open_session("", params)
    said = refusal(session.load, b"not a state")
    session.close()
    return said


def case_foreign(library):
    """Another MPI library's functions are there for all to see, as Debian's PyTorch leaves them."""
    import ctypes
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    sys.modules["torch"] = sys  # as if that had been it
    return gradwire.start()


def case_left_out():
    """Batches of which one has a gradient that is not finite on the last rank, and one is cancelled by
    it, against the same without them."""
    words = "--comm sparse --compress topk:ratio=0.1"
    rank, ranks = gradwire.start(words)
    said, kept = [], {}
    for way in ("with", "without"):
        params = initial(rank)
        session = open_session(words, params)
        for step in range(STEPS) if way == "with" else (0, 2, 4, 5):
            session.begin(2)
            grads = gradients(rank, step)
            if step == 1 and rank == ranks - 1:
                grads[1][3] = np.nan
            if step == 3 and rank == ranks - 1:
                session.cancel()
                continue
            session.ready(range(len(grads)), grads)
            updates = session.finish()
            said.append([step, updates, session.left_out()])
            for tensor, piece in session.owned() if updates else ():
                params[tensor].reshape(-1)[piece] -= RATE * grads[tensor].reshape(-1)[piece]
            session.updated()
            session.end()
        kept[way] = hash_of(b"".join(p.tobytes() for p in params))
        no_total = refusal(session.begin, 0)
        session.close()
    closed = [refusal(session.figure, "wall_s"), refusal(session.text, "mpi"), refusal(session.memory, 0)]
    return {"said": said, "same": kept["with"] == kept["without"], "hash": kept["with"],
            "no total": no_total, "closed": closed}


def case_lonely():
    """Rank 1 fails while rank 0 waits for it."""
    params = initial(gradwire.start()[0])
    session = open_session("", params)
    if session.rank == 1:
        raise ValueError("only here")
    train(session, params, range(1))


def case_exit(how):
    """Rank 1 ends in the way `how`, while rank 0 goes on."""
    import threading
    ways = {"message": lambda: sys.exit("the message"), "zero": lambda: sys.exit(0),
            "silent": lambda: sys.exit(0), "thread": lambda: in_thread(threading)}
    odd = gradwire.start()[0] == 1
    if odd and how in ("message", "silent"):  # no session is open
        ways[how]()
    if odd and how == "thread":
        return ways[how]()
    session = open_session("", initial(0))
    if odd and how == "zero":
        with session, session.batch(1):
            ways[how]()
    train(session, initial(0), range(1))


def case_forks():
    """Children end in four ways, and call what is not theirs; the rank trains on."""
    session = open_session("", initial(0))
    ends = {}
    with session:
        train(session, initial(0), range(1))
        for how in "exit", "raise", "process", "calls":
            if how == "process":
                child = multiprocessing.get_context("fork").Process(target=sys.exit, args=[4])
                child.start()
                child.join()
                ends[how] = child.exitcode
                continue
            pid = os.fork()
            if pid == 0 and how == "calls":
                said = [refusal(call) for call in (session.poll, session.close, gradwire.start, gradwire.Session)]
                os._exit(sum("this process is a child (fork)" in one for one in said))
            if pid == 0 and how == "raise":
                raise ValueError("in a child")
            if pid == 0:
                sys.exit(0)
            ends[how] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        train(session, initial(0), range(1, 3))
    return ends


def case_alone():
    """What processes of their own, which think that they are the only one, learn."""
    found = []
    for size in "", "1":
        os.environ["WORLD_SIZE"] = size
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(refusal, [gradwire.start]))
    sys.modules["torch.distributed"] = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True,
                                                             get_rank=lambda: 0, get_world_size=lambda: 2)
    os.environ["PMI_RANK"] = "0"  # so that MPI is not started as the group is
    return {"said": [*found, refusal(gradwire.start)]}


def in_thread(threading):
    """The exception of a thread without a session is its own affair; that of one with one is not."""
    def work(opens):
        if opens:
            open_session("", initial(1))
        raise ValueError(f"in a thread, {opens}")
    for opens in (False, True):
        thread = threading.Thread(target=work, args=[opens])
        thread.start()
        thread.join()


def main():
    result = globals()[f"case_{sys.argv[1]}"](*sys.argv[2:])
    line = json.dumps(result) + "\n"
    os.write(1, line.encode())


if __name__ == "__main__":
    main()
