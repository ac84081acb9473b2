"""Training of a model that lies on several ranks: the run of one rank, in the same bits where that
is promised, and everything around it that a user meets.

Bits depend on the number of replicas, tensor ranks, microbatches and runs of rows; never on stages,
timetable, cut or recomputation."""

import os
import signal
import unittest

import faultcase
import gwrun

SMALL = ("--data", "synthetic:samples=700,features=20,classes=6,test=0.2", "--layers", "24,18,12",
         "--activation", "tanh", "--batch", 30, "--lr", 0.1, "--ceilings", "off")
LAYERS = 4
# Exchanges that are the same whatever lies beside it in the arena.
STRATEGIES = ("allreduce", "allreduce:algo=ring", "iallreduce:bucket=1K --update lazy",
              "iallreduce --momentum 0.9", "sharded", "sharded --update lazy", "ps",
              "local:period=3", "local:period=4,momentum=1 --momentum 0.9", "gossip", "delayed",
              "allreduce --on-nan skip --momentum 0.9 --weight-decay 0.01")
# What a codec keeps, or how it rounds, depends on what is encoded with it.
LOSSY = ("allreduce --compress topk:ratio=0.2", "iallreduce --compress qsgd --update lazy",
         "sparse --compress topk:ratio=0.2", "powersgd", "oktopk:ratio=0.2", "sharded --compress bf16",
         "allreduce --compress topk:ratio=0.2 --error-feedback dgc --momentum 0.5",
         "iallreduce:algo=sra --compress int8sum", "ps --compress qsgd:bits=8")


class Mesh(gwrun.Case):
    def train(self, ranks, *words, data=SMALL):
        """The folder of a run of these words, each of which may be several."""
        out = self.new()
        gwrun.train(ranks, out, *data, *" ".join(map(str, words)).split())
        return out

    def assert_same_bits(self, out, other):
        self.assertEqual(gwrun.model(out), gwrun.model(other))
        self.assertEqual(gwrun.losses(out), gwrun.losses(other))
        ours, theirs = (faultcase.columns(run, "epochs.csv", ("step", "replica_hash"))
                        for run in (out, other))
        self.assertEqual(ours, theirs)

    # ---- the run of one rank ----

    def test_bits(self):
        """Of each mesh, timetable and way to hold less: tests/contract; in test_mesh_resume from one to another."""
        ways = {1: [(4, "--mesh pipe=4"), (2, "--mesh pipe=2 --stages measured")],
                4: [(4, "--mesh pipe=4 --recompute on --timetable 1f1b:eager=1"),
                    (3, "--mesh pipe=3 --timetable zb --stages 1,1,2 --wire-check on")]}
        for micro, words in ways.items():
            one = self.train(1, "--epochs 2 --microbatches", micro)
            for ranks, *more in words:
                with self.subTest(micro=micro, ranks=ranks, words=more):
                    self.assert_same_bits(
                        self.train(ranks, "--epochs 2 --microbatches", micro, *more), one)

    def test_fashion_mnist(self):
        data = ("--data", "fashion-mnist", "--layers", "128,64", "--batch", 64, "--steps", 20)
        one = self.train(1, "--microbatches 4", data=data)
        pipe = self.train(2, "--microbatches 4 --mesh pipe=2 --timetable zb", data=data)
        self.assert_same_bits(pipe, one)

    # ---- with what exchanges gradients ----

    def test_strategies(self):
        for comm in STRATEGIES:
            with self.subTest(comm=comm):
                words = ("--epochs 2 --microbatches 3 --comm", comm)
                self.assert_same_bits(self.train(4, *words, "--mesh pipe=2 --timetable zb"),
                                      self.train(2, *words))

    def test_lossy(self):
        """The replicas of each stage agree after every step, and the model learns."""
        for comm in LOSSY:
            with self.subTest(comm=comm):
                out = self.train(4, "--epochs 3 --verify-every 1 --lr 0.05 --microbatches 2 "
                                 "--mesh pipe=2 --comm", comm)
                losses = gwrun.losses(out)
                self.assertLess(losses[-1], losses[0])

    def test_codecs_of_activations(self):
        for codec in gwrun.names("compress/codecs.def"):
            with self.subTest(codec=codec):
                out = self.train(4, "--steps 20 --verify-every 1 --mesh pipe=2,tensor=2 "
                                 "--microbatches 2 --compress-activations", codec)
                self.assertEqual(len(gwrun.losses(out)), 20)

    def test_codec_with_a_stage_behind_it(self):
        """Its bytes on the wire are fewer than those of the codec alone, and people are told."""
        sent = []
        for codec in ("fp16", "fp16+zlib", "topk:ratio=0.2+zlib"):
            out = self.train(2, "--steps 4 --mesh pipe=2 --compress-activations", codec)
            sent.append(sum(int(row["pipe_bytes"]) for row in gwrun.batches(out)))
            notes = gwrun.run_json(out)["comm"]["notes"] or ""
            self.assertEqual("--compress-activations: topk+zlib is biased" in notes, "topk" in codec)
        self.assertLess(sent[1], sent[0])
        self.assertLess(sent[2], sent[0])

    # ---- what is told ----

    def test_run_json(self):
        out = self.train(4, "--steps 4 --mesh pipe=2,tensor=2 --microbatches 4 --timetable zb "
                         "--stages 3,1 --tensor-split columns --recompute on")
        self.assertEqual(gwrun.run_json(out)["mesh"],
                         {"data": 1, "pipe": 2, "tensor": 2, "split": "columns", "timetable": "zb",
                          "microbatches": 4, "chunks": 1, "layers": [3, 1], "recompute": True})
        rows = gwrun.batches(out)
        self.assertEqual(len(rows), 16)
        self.assertEqual({int(row["rank"]) for row in rows if int(row["samples"]) > 0}, {2})
        out = self.train(2, "--steps 2")
        self.assertIsNone(gwrun.run_json(out)["mesh"])

    # ---- refusals ----

    def refused(self, ranks, words, says):
        with self.subTest(ranks=ranks, words=words):
            done = gwrun.run(ranks, "train", *SMALL, "--steps", 2, "--overhead", 0, *words.split())
            gwrun.refusal(done, says)

    def test_refused_anywhere(self):
        """Before the number of ranks matters."""
        whole = "does not go with pipe or tensor in --mesh"
        for ranks in (0, 4):  # 0: one, without a launcher
            self.refused(ranks, "--mesh pip=2", "unknown dimension 'pip': did you mean 'pipe'?")
            self.refused(ranks, "--mesh pipe=0", "'0' is not a number of ranks: give 1 or more")
            self.refused(ranks, "--mesh pipe=9999999999", "is not a number of ranks")
            self.refused(ranks, "--mesh tensor=2x", "'2x' is not a number of ranks")
            self.refused(ranks, "--mesh pipe", "write it as in data=2,pipe=2,tensor=2")
            self.refused(ranks, "--mesh pipe=1,pipe=1", "pipe is given twice")
            self.refused(ranks, "--mesh pipe=1048576,tensor=1048576", "takes a multiple of 109951")
            self.refused(ranks, "--timetable 2f2b", "unknown timetable '2f2b'")
            self.refused(ranks, "--timetable zb:eager=1", "eager")
            self.refused(ranks, "--microbatches 31", "a replica takes")
            self.refused(ranks, "--microbatches 0", "microbatches")
            self.refused(ranks, "--mesh pipe=2 --compress-activations topk;layer0=none",
                         "unknown codec 'topk;layer0=none'")
            self.refused(ranks, "--timetable interleaved --microbatches 2",
                         "one stage has nothing to interleave")
            self.refused(ranks, "--compress-activations fp16", "nothing carries activations")
            self.refused(ranks, "--compress-deltas fp16",
                         "--compress-deltas: nothing carries activations")
            self.refused(ranks, "--tensor-algo rig", "unknown algorithm 'rig'")
            for words in ("--stages 1,3", "--stages measured", "--mesh tensor=2 --stages 4"):
                self.refused(ranks, words, "--stages: nothing is cut into stages: add pipe")
            for words in ("timetable gpipe", "timetable 1f1b:eager=1", "recompute on"):
                self.refused(ranks, f"--check --{words}",
                             f"--{words.split()[0]}: a batch passes at once: give --microbatches, or add pipe to --mesh")
            for words in ("tensor-split columns", "tensor-chunks 2", "tensor-algo ring"):
                self.refused(ranks, f"--mesh pipe=2 --{words}",
                             f"--{words.split()[0]}: no layer is cut: add tensor to --mesh")
            for algo in ("shm", "hier", "auto"):
                self.refused(ranks, f"--mesh tensor=2 --tensor-algo {algo}",
                             f"--tensor-algo {algo} may sum in memory that the ranks of a node share, "
                             "and activations lie in a rank's own: take native, ring or another")
            for words in ("--bound", "--compress auto", "--forecast",
                          "--data-layout sharded", "--compress-stats 2"):
                out = self.path("refused")
                self.refused(ranks, f"--mesh pipe=2 {words} --out {out}", whole)
            self.refused(ranks, "--mesh pipe=65536,tensor=65536 --bound", whole)  # 0 ranks in 32 bits
            self.refused(ranks, "--mesh tensor=2 --comm iallreduce:progress=thread",
                         "use progress=poll")

    def test_refused_shapes(self):
        """Ranks that do not make the mesh, layers that do not."""
        self.refused(1, "--mesh pipe=2", "pipe=2 takes a multiple of 2 ranks, and there is 1")
        for ranks in (2, 4):
            self.refused(ranks, "--mesh pipe=3",
                         f"takes a multiple of 3 ranks, and there are {ranks}")
        self.refused(3, "--mesh data=1,tensor=2", "takes 2 ranks, and there are 3")
        self.refused(4, "--mesh data=1,tensor=2", "takes 2 ranks, and there are 4")
        self.refused(3, "--mesh pipe=3 --layers 5", "the model has 2 layers, each chunk needs one")
        self.refused(4, "--mesh pipe=4 --timetable interleaved --microbatches 4",
                     "the model has 4 layers, each chunk needs one: at most pipe=2")
        self.refused(2, "--mesh pipe=2 --timetable interleaved --microbatches 3",
                     "3 microbatches on 2 stages: give a multiple of 2")
        self.refused(2, "--mesh pipe=2 --timetable interleaved",
                     "1 microbatch on 2 stages: give a multiple of 2")
        self.refused(4, "--mesh tensor=4 --layers 3,4", "layer 0 has 3 neurons: at most tensor=3")
        self.refused(3, "--mesh tensor=3 --layers 8,2 --tensor-split columns",
                     "layer 1 has 2 neurons: at most tensor=2")
        for cut in ("2", "2,1", "1,2,1", "0,4", "4,0", "1,3,", ",", "1;3", "-1,5", "1,x", "two"):
            self.refused(2, f"--mesh pipe=2 --stages {cut}", f"--stages {cut}: give 2 numbers")
        self.refused(4, "--mesh pipe=2 --microbatches 16", "a replica takes 15 samples a step")
        self.refused(2, "--mesh pipe=2 --comm ps:dedicated=1", "keeps 1 of 1 replica from training")

    # ---- what disturbs a run ----

    def test_nan(self):
        """The loss overflows at the last stage; what else is named belongs to the whole model."""
        done = gwrun.run(3, "train", *SMALL, "--activation", "relu", "--lr", "1e6", "--overhead", 0,
                         "--epochs", 1, "--mesh", "pipe=3", "--microbatches", 3)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"step \d+, rank 2: the loss is no longer finite \(\w+\)")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_rank_stops(self):
        """The others tell which hop they wait for, and of whom."""
        run = self.enterContext(faultcase.Started(
            3, *map(str, SMALL), "--epochs", "1000000", "--overhead", "0", "--mesh", "pipe=3", "--microbatches", "3",
            "--hang-timeout", "6", "--inject-skew", "1:60", log=self.path("log")))
        run.ranks()
        run.await_line("parameters;")
        os.kill(run.ranks()[1], signal.SIGSTOP)
        self.assertNotEqual(run.status(), 0)
        self.assertRegex(run.text(), r"rank 2 .*no progress")
        self.assertRegex(run.text(), r"rank 2: +stage 2, chunk 0: forward pass of microbatch 0")
        self.assertRegex(run.text(), r"rank 2: .*\(activations\), schedule \d+, .*from rank 1 ")
        self.assertRegex(run.text(), r"rank 1 on this host .* is stopped \(SIGSTOP")

    @unittest.skipUnless(gwrun.cached("GW_GEMM") != "cblas", "another library computes the products")
    def test_rank_stops_in_an_evaluation(self):
        """The chunk is named that waits. A microbatch makes 6 products of rank 1: a forward one and
        two backward ones for each of its two layers."""
        env = faultcase.product(self.dir, "stuck", 2 * 6 + 1, rank=1)
        done = gwrun.run(2, "train", *SMALL, "--overhead", 0, "--profile", "timers", "--steps", 1,
                         "--mesh", "pipe=2", "--microbatches", 2, "--timetable", "interleaved",
                         "--hang-timeout", 4, env=env)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"rank 0: +stage 0, chunk 1: evaluation of microbatch 0")
        self.assertRegex(done.stderr, r"rank 1: +stage 1, chunk 0: evaluation of microbatch 0")
