"""Ranks that another launcher than mpiexec has started, and gradwire.run, which is mpiexec."""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import unittest

import gwrun
from test_python import LIBRARY
from test_recipes import has
from test_testbed import POSSIBLE, TESTBED
from test_torch import NONE, PYTHON, VERSION

HERE = os.path.dirname(os.path.abspath(__file__))
RANK = os.path.join(HERE, "launch_rank.py")
OF_TWO = [[rank, 2, rank, [1.5] * 5, 2.0] for rank in (0, 1)]
START = "int gradwire_start(void) { return -1; }"
SANITIZED = "a sanitizer's runtime would have to be preloaded"
OF_LAUNCHERS = re.compile("PMI|OMPI_|PMIX|MV2_|TORCHELASTIC|RANK$|WORLD_SIZE|MASTER_")


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not OF_LAUNCHERS.match(name)}
    env.update(GRADWIRE_LIBRARY=LIBRARY, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    env.pop("GRADWIRE", None)
    return {**env, **more}


def ranks(n, *words, python=sys.executable, **more):
    """The finished processes of n ranks, of which each knows its number alone."""
    return together([([python, RANK, *words], environment(RANK=str(rank), **more)) for rank in range(n)])


def together(commands):
    """The finished processes of these commands, each with an environment. Rank 0's server, which has its standard
    error, has ended, too."""
    started = [subprocess.Popen(words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for words, env in commands]
    try:
        return [subprocess.CompletedProcess(one.args, one.wait(gwrun.HANG_S), *one.communicate()) for one in started]
    finally:
        for one in started:
            one.kill()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def told(done):
    return [json.loads(gwrun.well(one)) for one in done]


def stub(folder, *lines):
    """A library that has all that the package asks for, but does nothing; returns its path."""
    names = re.findall(r'^    "(gradwire_\w+)"', gwrun.read(gwrun.SOURCE, "python/gradwire/library.py"), re.MULTILINE)
    names.remove("gradwire_error")
    names.remove("gradwire_start")
    functions = [f"int {name}(void) {{ return -1; }}" for name in names]
    gwrun.preload(folder, "\n".join([*functions, 'const char *gradwire_error(void) { return "the library said no"; }',
                                     *lines]) + "\n")
    return os.path.join(folder, "first.so")


@unittest.skipIf(gwrun.cached("GW_SANITIZE"), SANITIZED)
class Served(gwrun.Case):
    """By the server alone, without PyTorch."""

    @unittest.skipIf(gwrun.by_open_mpi(), "Open MPI's ranks do not ask as MPICH's do")
    def test_ranks_find_each_other(self):
        for hosts, nodes in ((["a", "a"], 1), (["a", "b", "a"], 2)):
            with self.subTest(hosts=hosts):
                folder = self.new()
                found = told(ranks(len(hosts), "served", folder, *hosts))
                mean = sum(range(1, len(hosts) + 1)) / len(hosts)
                for rank, (number, of, sums, left) in enumerate(found):
                    self.assertEqual((number, of, left), (rank, len(hosts), []))
                    self.assertEqual(sums, [mean] * 5)
                self.assertEqual(gwrun.run_json(folder, "run")["machine"]["nodes"], nodes)

    @unittest.skipIf(gwrun.by_open_mpi(), "Open MPI's ranks do not ask as MPICH's do")
    def test_one_rank_ends(self):
        for how, status, why in (("exit", 3, "rank 1 ended without MPI_Finalize"),
                                 ("abort", 1, "rank 1 called MPI_Abort")):
            with self.subTest(how=how):
                other, first = ranks(2, "breaks", self.new(), how)
                self.assertEqual((other.returncode, first.returncode), (1, status))
                self.assertEqual(other.stderr, f"gradwire: rank 0 ends, since {why}\n")

    def test_mapping(self):
        spec = importlib.util.spec_from_file_location("pmi", os.path.join(gwrun.SOURCE, "python/gradwire/pmi.py"))
        pmi = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(pmi)
        for hosts, text in (("a", "(0,1,1)"), ("aabb", "(0,2,2)"), ("aab", "(0,1,2),(1,1,1)"),
                            ("abab", "(0,2,1),(0,2,1)"), ("abba", "(0,1,1),(1,1,2),(0,1,1)")):
            self.assertEqual(pmi.mapping(hosts), f"(vector,{text})")


@unittest.skipIf(VERSION is None, NONE)
class Torch(gwrun.Case):
    """By PyTorch's rendezvous, and by its launcher."""

    def own(self, n, *words, **more):
        return ranks(n, *words, python=PYTHON, **{"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1",
                                                  "MASTER_PORT": free_port(), "GLOO_SOCKET_IFNAME": "lo", **more})

    @unittest.skipIf(gwrun.by_open_mpi(), "Open MPI's ranks do not ask as MPICH's do")
    def test_as_torch_numbers_them(self):
        """Also over a process group that is there already, and without `init`."""
        for how in "init", "group":
            with self.subTest(how=how):
                self.assertEqual(told(self.own(2, "torch", how)), OF_TWO)

    @unittest.skipIf(gwrun.by_open_mpi(), "Open MPI's ranks do not ask as MPICH's do")
    @unittest.skipIf(VERSION and VERSION < (2, 0), "Debian's torchrun fails with Python 3.11, whatever it starts")
    def test_torchrun_restarts(self):
        """All ranks start again, and find each other once more."""
        said = gwrun.said(PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                          "--max-restarts", "1", RANK, "torch", "restart", env=environment())
        self.assertEqual(sorted(json.loads(line) for line in said.splitlines()), OF_TWO)

    def on_two_nodes(self, address, interface, how, before=lambda node: []):
        """A torchrun for each of two nodes, with a rank each, which share no memory."""
        folder = self.path(how)
        port, env = free_port(), environment(GLOO_SOCKET_IFNAME=interface)
        found = told(together([([*before(node), PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node",
                                 "1", "--node-rank", str(node), "--master-addr", address, "--master-port", port, RANK,
                                 "torch", how, f"--comm allreduce:algo=ring --out {folder}"], env) for node in (0, 1)]))
        self.assertEqual(found, OF_TWO)
        self.assertEqual(gwrun.run_json(folder)["machine"]["nodes"], 2)

    @unittest.skipIf(gwrun.by_open_mpi(), "Open MPI's ranks do not ask as MPICH's do")
    @unittest.skipIf(VERSION and VERSION < (2, 0), "Debian's torchrun fails with Python 3.11, whatever it starts")
    def test_two_nodes(self):
        self.on_two_nodes("127.0.0.1", "lo", "nodes")

    @unittest.skipIf(gwrun.by_open_mpi(), "Open MPI's ranks do not ask as MPICH's do")
    @unittest.skipIf(VERSION and VERSION < (2, 0), "Debian's torchrun fails with Python 3.11, whatever it starts")
    @unittest.skipUnless(POSSIBLE, "hosts of their own take root, and a kernel that has network namespaces")
    def test_two_hosts(self):
        env = dict(os.environ, XDG_RUNTIME_DIR=self.dir)
        testbed = [sys.executable, TESTBED]
        name = ["--name", f"test{os.getpid()}"]
        gwrun.said(*testbed, "up", *name, env=env)
        self.addCleanup(gwrun.said, *testbed, "down", *name, env=env)
        self.on_two_nodes("10.77.0.1", "eth0", "init", before=lambda node: [
            "env", f"XDG_RUNTIME_DIR={self.dir}", *testbed, "exec", *name, str(node + 1), "--"])

    @unittest.skipIf(gwrun.by_open_mpi(), "Open MPI's ranks do not ask as MPICH's do")
    def test_accelerate_launch(self):
        if not has("accelerate"):
            self.skipTest(f"{PYTHON} has no accelerate")
        said = gwrun.said(PYTHON, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
                          "--main_process_port", free_port(), RANK, "torch", "init", env=environment(HF_HOME=self.dir))
        self.assertEqual(sorted(json.loads(line) for line in said.splitlines()), OF_TWO)

    def test_refusals(self):
        """An MPI library that cannot learn so from torchrun who its ranks are: the command that starts them."""
        number = "int MPI_{}(int *to) {{ *to = {}; return 0; }}".format
        deaf = (number("Initialized", "up"), "int MPI_Comm_size(int comm, int *to) { *to = 1; return comm < 0; }")
        for case, lines, said in (
                ("open", (START, "int ompi_mpi_comm_world;", "static int up;", deaf[0]), "Open MPI cannot be started by torchrun: "),
                ("deaf", ("static int up;", *deaf, "int gradwire_start(void) { up = 1; return -1; }"),
                 "this MPI library does not learn from its launcher as MPICH does")):
            with self.subTest(case=case):
                for found in told(self.own(2, "refused", GRADWIRE_LIBRARY=stub(self.new(), *lines))):
                    self.assertIn(said, found)
                    self.assertRegex(found, f": start the ranks by mpiexec -n 2 {PYTHON} {RANK} refused$")
        bad, = self.own(1, "refused", WORLD_SIZE="two")
        self.assertIn("WORLD_SIZE=two: must be two numbers", gwrun.well(bad))


@unittest.skipIf(gwrun.cached("GW_SANITIZE"), SANITIZED)
class Run(gwrun.Case):
    def start(self, *words, **more):
        self.write("train.py", "import sys, gradwire\nsys.stdout.write(f'{gradwire.start()} {sys.argv[1:]}\\n')\n")
        return gwrun.finished([sys.executable, "-m", "gradwire.run", *words], cwd=self.dir,
                              env=environment(PYTHONPATH=os.path.join(gwrun.SOURCE, "python"), **more))

    def test_starts_ranks(self):
        option = ["-x", "A=1"] if gwrun.by_open_mpi() else ["-env", "A", "1"]
        for words in (["train.py", "--", "b"], [*option, "--", "train.py", "--", "b"]):
            said = gwrun.well(self.start("-n", "2", *words))
            self.assertEqual(sorted(said.splitlines()), [f"({rank}, 2) ['--', 'b']" for rank in (0, 1)])

    def test_refusals(self):
        for words in ([], ["2", "train.py"], ["-n", "two", "train.py"], ["-n", "0", "train.py"], ["-n", "2"], ["-n", "2", "-x", "--"]):
            gwrun.refusal(self.start(*words), "gradwire.run: usage: python -m gradwire.run -n RANKS ")
        self.assertEqual(gwrun.well(self.start("--help")).splitlines()[0][:30], "usage: python -m gradwire.run ")
        version = 'int MPI_Get_library_version(char *to, int *n) { *n = __builtin_sprintf(to, "Some MPI 1.0"); return 0; }'
        gwrun.refusal(self.start("-n", "2", "train.py", GRADWIRE_LIBRARY=stub(self.dir, START, version)),
                      "first.so came without an mpiexec: start the ranks by that of Some MPI 1.0: mpiexec -n 2 "
                      f"{sys.executable} train.py")
