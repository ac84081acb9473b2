"""python -m gradwire.doctor: which libgradwire.so is taken and why, and what of MPI and PyTorch goes with it."""

import importlib.util
import os
import subprocess
import sys

from gradwire import pmi
from gradwire.library import REMEDY, VERSION, Error, find, first_line, location, mpi_version, mpiexec, places
from gradwire.session import Session

WAIT_S = 60
TOLD = "os.write(1, b'rank %d of %d\\n' % library.start_mpi(''))"
BY_MPIEXEC = f"import os; from gradwire import library; {TOLD}"
BY_PMI = f"""import os, sys; from gradwire import launch, library, pmi
with launch.environment(PMI_FD=pmi.join('localhost', *sys.argv[1:]), PMI_RANK=sys.argv[3], PMI_SIZE=2): {TOLD}"""
problems = 0


def say(topic, text, remedy=None):
    """A finding; `remedy`: what to do about a problem."""
    global problems
    problems += remedy is not None
    print(f"{'problem' if remedy else 'ok':8} {topic:9} {text}", flush=True)
    if remedy:
        print(f"{'':18} -> {remedy}")


def check_library():
    """Whether there is one that fits this package."""
    try:
        taken, _ = find()
        with Session() as session:
            say("library", f"{location()}, version {session.text('version')}, by {taken}")
    except Error as error:
        say("library", str(error).removesuffix(f": {REMEDY}"), REMEDY)
        return False
    for other, path in places():
        if other != taken and path:
            print(f"{'':18} not taken: {path}, by {other}")
    return True


def meet(*commands):
    """Whether the ranks that these start see that they are two."""
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for words in commands]
    said = b""
    for one in running:
        try:
            said += one.communicate(timeout=WAIT_S)[0]
        except subprocess.TimeoutExpired:
            one.kill()
    return sorted(said.splitlines()) == [b"rank 0 of 2", b"rank 1 of 2"]


def check_mpi():
    say("mpi", first_line(mpi_version()))
    by = mpiexec()
    if by is None:
        say("mpiexec", "the library came without one", "start the ranks by that of the MPI library, not another's")
    elif meet([by, "-n", "2", sys.executable, "-c", BY_MPIEXEC]):
        say("mpiexec", f"{by}: its ranks see each other")
    else:
        say("mpiexec", f"{by}: its ranks do not see each other", f"{by} -n 2 {sys.executable} -c "
            "'import gradwire; print(gradwire.start())' says why")
    port, token = pmi.serve(2, local=True)
    if meet(*([sys.executable, "-c", BY_PMI, port, token, rank] for rank in "01")):
        say("torchrun", "this MPI library can start under it")
    else:
        print(f"{'note':8} torchrun  this MPI library cannot start under it: use mpiexec, or python -m gradwire.run")


def check_torch():
    if importlib.util.find_spec("torch") is None:
        print(f"{'note':8} torch     none in {sys.executable}: gradwire.Session serves numpy")
        return
    import torch
    import torch.distributed as dist
    gloo = dist.is_available() and dist.is_gloo_available()
    say("torch", f"{torch.__version__}, {'with' if gloo else 'without'} Gloo, in {os.path.dirname(torch.__file__)}",
        None if gloo else "DistributedDataParallel needs Gloo: use gradwire.torch.Session")
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        print(f"{'note':8} torch     gradwire.torch.Session needs PyTorch 2.1; the hook serves this one")


def check_mpi4py():
    if importlib.util.find_spec("mpi4py"):
        from mpi4py import rc
        rc.initialize = False
        from mpi4py import MPI
        theirs, ours = first_line(MPI.Get_library_version()), first_line(mpi_version())
        say("mpi4py", theirs, None if theirs == ours else f"it must use {ours} for communicators of it to be taken")


def main():
    say("package", f"{os.path.dirname(os.path.abspath(__file__))}, version {VERSION}, Python {sys.version.split()[0]}")
    if check_library():
        check_mpi()
        check_mpi4py()
    check_torch()
    return 1 if problems else 0


if __name__ == "__main__":
    if sys.argv[1:]:
        print(f"gradwire.doctor: unexpected word '{sys.argv[1]}': it takes none", file=sys.stderr)
        sys.exit(2)
    sys.exit(main())
