"""The Python package: gradwire.Session on numpy arrays, and how the library is found."""

import concurrent.futures
import ctypes
import json
import os
import re
import shutil
import sys
import unittest

import gwrun
import identities

HERE = os.path.dirname(os.path.abspath(__file__))
RANK = os.path.join(HERE, "python_rank.py")
LIBRARY = os.environ.get("GRADWIRE_LIBRARY") or os.path.join(os.environ["BUILD"], "libgradwire.so")
SYNCHRONOUS = {"allreduce", "iallreduce", "ps", "sharded", "sparse"}


def launch(ranks, script, *words, python=sys.executable, **more):
    env = dict(os.environ, GRADWIRE_LIBRARY=LIBRARY, PYTHONDONTWRITEBYTECODE="1")
    env.pop("GRADWIRE", None)
    env.update(more)
    return gwrun.finished([gwrun.MPIEXEC, "-n", str(ranks), python, script, *words], env=env)


def results(ranks, script, *words, **more):
    """What each rank printed, in any order."""
    done = launch(ranks, script, *words, **more)
    if done.returncode != 0:
        raise AssertionError(f"{script} {words}: {done.returncode}: {done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]


def every_strategy():
    """Words for each, with an exact codec."""
    return [f"--comm {name}" + (" --compress topk:ratio=1" if name == "sparse" else "")
            for name in gwrun.names("comm/strategies.def")]


@unittest.skipIf(gwrun.cached("GW_SANITIZE"), "a sanitizer's runtime would have to be preloaded")
class Numpy(gwrun.Case):
    def test_every_strategy(self):
        words = every_strategy() + ["--comm iallreduce --compress qsgd:bits=8", "--comm local:period=2",
                                    "--comm sparse --compress topk:ratio=0.1",
                                    "--comm sharded --compress onebit"]
        for ranks in (1, 2):
            told = results(ranks, RANK, "strategies", json.dumps(words))
            self.assertEqual(len(told), ranks)
            for one in words:
                with self.subTest(words=one, ranks=ranks):
                    self.assertEqual(len({rank[one]["hash"] for rank in told}), 1, "replicas differ")
                    self.assertTrue(all(rank[one]["resumed"] for rank in told), "resumed differently")
                    self.assertEqual(told[0][one]["strategy"].partition(":")[0],
                                     one.split()[1].partition(":")[0])
                    if one in every_strategy() and one.split()[1] in SYNCHRONOUS:
                        self.assertLess(told[0][one]["apart"], 1e-6)

    def test_lossy_is_not_exact(self):
        """The comparison with the serial run can fail."""
        words = "--comm iallreduce --compress onebit"
        told = results(2, RANK, "strategies", json.dumps([words]))
        self.assertGreater(told[0][words]["apart"], 1e-4)

    def test_run_folder(self):
        out = self.path("run")
        for told in results(2, RANK, "folder", out):
            self.assertTrue(told["zero"] and told["absent"] and told["moved"], told)
            self.assertGreater(told["wire"], 0)
            self.assertTrue(told["mpi"])
        self.assertEqual(gwrun.run_json(out)["program"], "library")
        self.assertEqual([row["loss"] for row in gwrun.batches(out)], ["1"] * 6)
        names = ("validation_loss", "validation_accuracy", "test_loss", "test_accuracy")
        self.assertEqual([[row[name] for name in names]
                          for row in gwrun.rows(out, "epochs.csv")], [["0.75", "", "0.5", "0.25"], ["", "", "0.5", ""]])

    def test_memory_for_gradients(self):
        for told in results(2, RANK, "memory", self.path("run")):
            self.assertEqual(told["same"], [True, True])

    def test_parts_of_parameters(self):
        """`sharded` scatters the means of each group, and gathers nothing: half of an allreduce's bytes."""
        ranks, sizes = 3, (30, 5, 120)
        wholes = [f"--on-nan keep --comm {comm}:algo=ring --update {update}" for comm in ("sharded", "iallreduce")
                  for update in ("eager", "lazy")]
        lossy = "--comm sharded:algo=sra --parameters parts --compress qsgd"
        parts = [f"{one} --parameters parts" for one in wholes]
        told = results(ranks, RANK, "parts", json.dumps([*wholes, *parts, lossy]))
        for one, words in zip(wholes + parts, [*wholes, *parts]):
            with self.subTest(words=words):
                scatters = "sharded" in words and words in parts
                wire = [sum(rank[words]["sent"][step] for rank in told) for step in range(6)]
                self.assertEqual(wire, [4 * sum(sizes) * (ranks - 1) * (1 if scatters else 2)] * 6)
                self.assertLess(max(rank[words]["apart"] for rank in told), 1e-6)
                for rank in told:
                    self.assertEqual(rank[words]["memory"] is None, words in wholes)
                    self.assertEqual(rank[words]["epoch"] is None, words in wholes)
        for words in parts[:2]:
            self.assertEqual(sorted(piece for rank in told for piece in rank[words]["owned"]),
                             [[0, 0, 11], [0, 11, 23], [0, 23, 30], [1, 0, 5], [2, 0, 40], [2, 40, 80], [2, 80, 120]])
        for rank in told:
            self.assertTrue(0 < rank[lossy]["apart"] < 1)
            self.assertLess(max(rank[lossy]["sent"]), 300)
            self.assertIn("ps exchanges parameters, which no rank has whole", rank["--comm ps"])
            self.assertIn("it moves parameters that a rank has whole", rank["--optimizer sgd"])
            self.assertIn("there are no replicas to compare", rank["--verify-every 1"])
            self.assertIn("there are no replicas to compare", rank[parts[0]]["epoch"])

    def test_what_a_save_drains_is_counted(self):
        results(2, RANK, "saved", f"--comm delayed:algo=sra --out {self.path('run')}")
        identities.traffic(self, self.path("run"))

    def test_refusals(self):
        for ranks in (1, 2):
            for told in results(ranks, RANK, "refusals"):
                for key, part in {"words": "nosuch", "auto": "auto", "comm": "int is not an mpi4py communicator",
                                  "mpi4py": "mpi4py uses Another MPI 1.0, gradwire ",
                                  "dtype": "x: float64", "strides": "x: float32, strides (4, 16)",
                                  "size": "gradient of tensor 0: 3 elements, not 30", "share": "share: must be a writable",
                                  "first": "other sessions of this process are open",
                                  "words of a second": "--out: the first handle", "closed": "poll: the session is closed", "load": ""}.items():
                    self.assertIsNotNone(told[key], key)
                    self.assertIn(part, told[key])
                    self.assertNotIn("\n", told[key])
                self.assertEqual(told["shared"], [0, 7])
                self.assertEqual(told["mean"], [(ranks - 1) / 2, [(ranks - 1) / 2, 1]])

    def test_left_out(self):
        for ranks in (1, 2):
            told = results(ranks, RANK, "left_out")
            self.assertEqual(len({rank["hash"] for rank in told}), 1, "replicas differ")
            for rank in told:
                self.assertTrue(rank["same"], "as without the batches")
                for step, updates, left_out in rank["said"]:
                    self.assertEqual((updates, left_out), (step not in (1, 3), step in (1, 3)), step)
                self.assertIn("give total", rank["no total"])
                for said in rank["closed"]:
                    self.assertIn("the session is closed", said)

    def test_options_of_train(self):
        """Each is a word of the library, or refused as one of `gradwire train`."""
        library = ctypes.CDLL(LIBRARY)
        library.gradwire_error.restype = library.gradwire_words.restype = ctypes.c_char_p
        names = re.findall(r"^ +--([a-z-]+)", gwrun.clean(1, "train", "--help").stdout, re.MULTILINE)
        self.assertGreater(len(names), 60)
        unknown = [name for name in [*names, "nosuch"] if library.gradwire_words(f"--{name}".encode(), None) is None
                   and b"unknown option" in library.gradwire_error()]
        self.assertEqual(unknown, ["nosuch"])

    def test_words_of_the_environment_win(self):
        done = results(1, RANK, "strategies", '["--comm allreduce"]', GRADWIRE="--comm sharded")
        self.assertEqual(done[0]["--comm allreduce"]["strategy"].partition(":")[0], "sharded")

    def test_beside_another_mpi(self):
        body = "{ abort(); }\n"
        names = ("MPI_Init", "MPI_Init_thread", "MPI_Initialized", "MPI_Comm_rank", "MPI_Finalize")
        gwrun.preload(self.dir, "#include <stdlib.h>\n" + "".join(f"int {n}(void) {body}" for n in names))
        said = gwrun.well(launch(2, RANK, "foreign", self.path("first.so")))
        self.assertEqual(sorted(said.split()), ["2]", "2]", "[0,", "[1,"])

    def test_an_exception_on_one_rank_ends_the_job(self):
        done = launch(2, RANK, "lonely")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ValueError: only here", done.stderr)

    def test_children(self):
        done = launch(2, RANK, "forks")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()],
                         [{"exit": 0, "raise": 1, "process": 4, "calls": 4}] * 2)
        self.assertEqual(done.stderr.count("ValueError: in a child"), 2)
        self.assertNotIn("gradwire: rank", done.stderr)

    def test_ends_on_one_rank(self):
        """Whatever ends a rank while others go on: the job ends, with another status than 0, and says why.
        The timeout is of use in the last one alone."""
        open_still = r"gradwire: rank 1: the program ends, with exit status 0, with a handle open, after 1 batches"
        ends = {"zero": open_still, "message": r"the message\n(?s:.*)gradwire: rank 1: ends with exit status 1, and",
                "thread": r"(?s)in a thread, False.*in a thread, True",
                "silent": "gradwire: rank 0 .*: no progress for .*: in gradwire_start, 0 steps done"}
        with concurrent.futures.ThreadPoolExecutor(len(ends)) as pool:
            done = {how: pool.submit(launch, 2, RANK, "exit", how,
                                     GRADWIRE=f"--hang-timeout {10 if how == 'silent' else 600}") for how in ends}
        for how, says in ends.items():
            with self.subTest(how=how):
                errors = done[how].result().stderr
                self.assertRegex(errors, says)
                self.assertNotEqual(done[how].result().returncode, 0)
                ours = [line for line in errors.splitlines() if line.startswith("gradwire: rank 1")]
                self.assertEqual(len(ours), how in ("zero", "message"), errors)

    def test_launcher(self):
        env = {**os.environ, "GRADWIRE_LIBRARY": LIBRARY}
        spawned, meant, group = json.loads(gwrun.well(gwrun.finished([sys.executable, "-B", RANK, "alone"], env=env)))["said"]
        self.assertRegex(spawned, "^MPI has 1 rank, and multiprocessing .*: call torch.distributed.init_process_group first")
        self.assertIsNone(meant)
        self.assertRegex(group, "^MPI has 1 rank, and the process group of torch.distributed 2: ")
        alone = gwrun.finished([sys.executable, "-B", RANK, "exit", ""], env={**env, "WORLD_SIZE": "2"})
        self.assertEqual(alone.returncode, 1)
        self.assertRegex(alone.stderr.splitlines()[-1], "Error: MPI has 1 rank, but WORLD_SIZE=2 says that torchrun "
                                                        "started several: .* unset WORLD_SIZE if each is to run alone")

    def test_library_is_checked(self):
        script = f"import sys; sys.path.insert(0, {gwrun.SOURCE + '/python'!r}); import gradwire; " \
                 "gradwire.start()"
        other = self.path("other.so")
        gwrun.preload(self.dir, "int gradwire_nothing;\n")
        os.rename(self.path("first.so"), other)
        for library, part in ((self.path("none.so"), "no such file"),
                              (RANK, "cannot load"), (other, "has no gradwire_error")):
            done = gwrun.finished([sys.executable, "-B", "-c", script], env={**os.environ, "GRADWIRE_LIBRARY": library})
            self.assertEqual(done.returncode, 1)
            last = done.stderr.strip().splitlines()[-1]
            self.assertTrue(last.startswith("gradwire.library.Error: "), last)
            self.assertIn(part, last)


@unittest.skipIf(gwrun.cached("GW_SANITIZE"), "a sanitizer's runtime would have to be preloaded")
class Found(gwrun.Case):
    """Which library is taken."""

    def ask(self, *words, package=os.path.join(gwrun.SOURCE, "python"), path="", **more):
        env = {name: value for name, value in os.environ.items() if name != "GRADWIRE_LIBRARY"}
        env.update(more, PYTHONPATH=package, PATH=f"{path}:/usr/bin:/bin")
        return gwrun.finished([sys.executable, "-B", *words], env=env, cwd=self.dir)

    def find(self, **more):
        return gwrun.well(self.ask("-c", "from gradwire import library; print(*library.find(), sep='|')", **more))

    def test_in_this_order(self):
        """What the user names goes before what happens to be there."""
        build = os.environ["BUILD"]
        os.mkdir(self.path("lib"))
        beside = os.path.join(shutil.copytree(os.path.join(gwrun.SOURCE, "python"), self.path("copy")), "gradwire", "libgradwire.so.0")
        for link in beside, self.path("lib", "libgradwire.so"):
            os.symlink(os.path.join(build, "libgradwire.so.0"), link)
        self.write("gradwire.pc", f"Name: gradwire\nDescription:\nVersion: 1\nLibs: -L{self.dir}/lib -lgradwire\n")
        pkg = {"PKG_CONFIG_PATH": self.dir}
        named = {"GRADWIRE_LIBRARY": os.path.join(build, "libgradwire.so")}
        for more, taken in (({**pkg, **named, "path": build, "package": self.path("copy")}, f"GRADWIRE_LIBRARY|{build}/libgradwire.so"),
                            ({**pkg, "path": build, "package": self.path("copy")}, f"the package|{beside}"),
                            ({**pkg, "path": build}, f"gradwire in PATH|{build}/libgradwire.so.0"),
                            (pkg, f"pkg-config|{self.dir}/lib/libgradwire.so")):
            self.assertEqual(self.find(**more), taken + "\n")

    def test_doctor(self):
        done = self.ask("-m", "gradwire.doctor", path=os.environ["BUILD"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for part in (r"ok       library   .*/libgradwire\.so\.0\.1\.0, version 0\.1\.0\S*, by gradwire in PATH\n",
                     r"ok       mpiexec   .*/mpiexec: its ranks see each other\n",
                     "note     torchrun  this MPI library cannot start under it" if gwrun.by_open_mpi()
                     else "ok       torchrun  this MPI library can start under it"):
            self.assertRegex(done.stdout, part)
        done = self.ask("-m", "gradwire.doctor", GRADWIRE_LIBRARY="/none.so")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        gwrun.refusal(self.ask("-m", "gradwire.doctor", "x"), "unexpected word 'x'")
        self.assertRegex(done.stdout, "problem  library   GRADWIRE_LIBRARY=/none.so: no such file: .*\n +-> build gradwire by")
        none = self.ask("-c", "from gradwire import doctor, library; library.places = list; doctor.main()")
        self.assertRegex(none.stdout, "problem  library   no libgradwire.so.0: .* leads to one\n +-> build gradwire by ./quickstart")
        self.assertNotIn("gradwire.doctor", none.stdout)
