"""Checkpoints of models that lie on several ranks: on the same mesh a resumed run ends with the bits
of one that never stopped; any other mesh, or none, goes on from what the ranks held together."""

import json
import os
import shutil
import signal
import struct
import zlib

import faultcase
import gwrun
import killcase

SMALL = ("--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--layers", "24,18,12",
         "--activation", "tanh", "--batch", 20, "--epochs", 2, "--ceilings", "off", "--profile", "timers")
HALF, STEPS = 30, 48  # within the second epoch of 24
EXACT = 1e-5
# Of 4 ranks, each with another part of the model on some rank.
MESHES = ("", "pipe=4", "tensor=4 --tensor-split columns", "pipe=2", "data=2,tensor=2",
          "tensor=2,pipe=2")
# All that a rank carries from step to step, on the mesh that it had.
STATES = ("--mesh pipe=2,tensor=2 --microbatches 2 --timetable zb --momentum 0.9 --lr-warmup 40",
          "--mesh pipe=2,tensor=2 --tensor-split columns --tensor-chunks 2 --recompute on",
          "--mesh pipe=2 --microbatches 3 --comm iallreduce --update lazy --compress topk",
          "--mesh tensor=2,data=2 --microbatches 2 --compress qsgd:bits=4 --error-feedback on "
          "--compress-activations qsgd:bits=8",
          "--mesh data=2,pipe=2 --timetable interleaved:chunks=2 --microbatches 2 --comm sharded "
          "--momentum 0.9 --stages measured",
          "--mesh pipe=2 --comm local:period=7,momentum=1 --compress onebit --momentum 0.5",
          "--mesh pipe=2 --comm powersgd --wire-check on",
          "--mesh pipe=2 --comm delayed --compress topk --error-feedback dgc --momentum 0.5")


def folder_of(out, step=HALF):
    return os.path.join(out, "model.ckpt.d", f"step-{step:012d}")


def outcome(out):
    """What two equal runs have in common."""
    return {"model": gwrun.model(out),
            "epochs": faultcase.columns(out, "epochs.csv", ("step", "train_loss", "test_accuracy",
                                                            "replica_hash")),
            "rows": faultcase.columns(out, "batches.csv", ("rank", "step", "loss", "samples"))}


# ---- checkpoints as an enemy may have left them ----

def close(data):
    return data + struct.pack("<I", zlib.crc32(data))


def put_manifest(folder, text):
    text = text.rpartition("crc32 ")[0]
    gwrun.write(os.path.join(folder, "manifest"), f"{text}crc32 {zlib.crc32(text.encode()):08x}\n")


def put_rank(folder, rank, data):
    """Replace a rank's file, so that the manifest agrees; `data` lacks its checksum."""
    name = f"rank-{rank:05d}.gw"
    text = gwrun.read(folder, "manifest")
    old = next(one for one in json.loads(text.rpartition("crc32 ")[0])["files"]
               if one["name"] == name)
    gwrun.write(os.path.join(folder, name), close(data))
    at = text.index(f'"{name}"')
    end = text.index("}", at)
    one = text[at:end].replace(f': {old["bytes"]}', f": {len(data) + 4}")
    one = one.replace(f'"{old["crc32"]}"', f'"{zlib.crc32(data):08x}"')
    put_manifest(folder, text[:at] + one + text[end:])


def rank_file(folder, rank):
    return gwrun.read_bytes(folder, f"rank-{rank:05d}.gw")[:-4]


def field(data, name):
    """Where a field begins, where its data do, and where these end."""
    head = struct.pack("<I", len(name)) + name
    at = data.index(head)
    start = at + len(head) + 8
    return at, start, start + struct.unpack_from("<Q", data, start - 8)[0]


def forged(data, name, at, value):
    start = field(data, name)[1] + 8 * at
    return data[:start] + struct.pack("<Q", value) + data[start + 8:]


class MeshResume(gwrun.Case):
    def train(self, ranks, *words, out=None):
        """The folder of a run of these words, each of which may be several."""
        out = out or self.new()
        gwrun.train(ranks, out, *SMALL, *" ".join(map(str, words)).split())
        return out

    def begin(self, ranks, *words, steps=HALF):
        return self.train(ranks, *words, "--checkpoint-every 1000 --steps", steps)

    def resume(self, ranks, path, *words, out=None):
        """The folder of a run that resumes from another folder's, and what it says."""
        out = out or self.new()
        done = gwrun.ok(ranks, "train", *SMALL, "--overhead", 0, "--out", out, "--resume", path,
                        *" ".join(map(str, words)).split())
        return out, done.stdout

    def refused(self, ranks, path, *words):
        done = gwrun.run(ranks, "train", *SMALL, "--overhead", 0, "--resume", path,
                         *" ".join(map(str, words)).split())
        return gwrun.refusal(done)

    def assert_same(self, out, other):
        for name, wanted in outcome(other).items():
            self.assertEqual(outcome(out)[name], wanted, name)

    # ---- the same mesh ----

    def test_to_the_bit(self):
        for words in STATES:
            with self.subTest(words=words):
                whole, out = self.train(4, words), self.begin(4, words)
                said = self.resume(4, "auto", words, "--resume-strict --checkpoint-every 1000",
                                   out=out)[1]
                self.assertNotRegex(said, r"\bchanged")
                self.assert_same(out, whole)
                if "onebit" not in words:  # whose replicas are settled after the checkpoint
                    self.assertEqual(gwrun.model(folder_of(out, STEPS)),
                                     gwrun.model(out))

    def test_a_measured_cut_stays(self):
        """Though other layers would cost the least by now."""
        words = "--mesh pipe=2 --compress topk --microbatches 2"
        out = self.begin(4, words, "--stages 3,1")
        folder = folder_of(out)
        text = gwrun.read(folder, "manifest")
        self.assertIn('"stages": "3,1"', text)
        put_manifest(folder, text.replace('"stages": "3,1"', '"stages": "measured"', 1))
        facts = json.loads(gwrun.read(folder, "manifest").rpartition("crc32 ")[0])["facts"]
        self.assertEqual((facts["options"]["stages"], facts["layout"]["stages"]),
                         ("measured", "3,1"))
        resumed, _ = self.resume(4, out, words, "--stages measured --resume-strict")
        self.assertEqual(gwrun.run_json(resumed)["mesh"]["layers"], [3, 1])
        error = self.refused(4, out, words, "--stages 1,3 --resume-strict")
        self.assertIn("--stages 3,1 then, 1,3 now: residuals of error feedback start anew", error)
        text = gwrun.read(folder, "manifest")
        for cut in ("9,9", "4", "1,2,1", "3,1x", "0,4"):
            put_manifest(folder, text.replace('"stages": "3,1"', f'"stages": "{cut}"'))
            self.assertIn(f"--resume: the checkpoint's stages, '{cut}', are not 2 numbers from 1 on "
                          "that add up to the model's 4 layers",
                          self.refused(4, out, words, "--stages measured"))

    # ---- another one ----

    def test_any_to_any(self):
        begin, end = (f"--momentum 0.9 --profile off --steps {steps}" for steps in (4, 6))
        serial = gwrun.losses(self.train(1, end))
        for then in MESHES:
            first = self.train(4, begin, "--checkpoint-every 1000",
                               f"--mesh {then}" if then else "")
            for now in MESHES:
                if now == then:
                    continue
                with self.subTest(then=then, now=now):
                    out, said = self.resume(4, first, end, f"--mesh {now}" if now else "",
                                            "--resume-strict")
                    self.assertIn("changed: --mesh", said)
                    self.assertLess(gwrun.apart(gwrun.losses(out), serial), EXACT)

    def test_bits_from_mesh_to_mesh(self):
        """Stages, cut, timetable and recomputation are no part of the arithmetic."""
        words = "--microbatches 4 --momentum 0.9 --checkpoint-every 1000"
        whole = self.train(1, words)
        out = self.begin(4, words, "--mesh pipe=4")
        for ranks, more in ((1, "--steps 33"), (2, "--mesh pipe=2 --timetable zb --steps 37"),
                            (3, "--mesh pipe=3 --stages 1,1,2 --recompute on --steps 40"),
                            (2, "--mesh pipe=2 --timetable interleaved")):
            self.resume(ranks, "auto", words, more, out=out)
        self.assertEqual(gwrun.losses(out), gwrun.losses(whole))
        for name in ("model", "epochs"):
            self.assertEqual(outcome(out)[name], outcome(whole)[name])
        self.assertEqual(gwrun.model(folder_of(out, STEPS)), gwrun.model(whole))
        rows = gwrun.batches(out)
        self.assertEqual({row["stage"] for row in rows if int(row["step"]) <= HALF},
                         {"0", "1", "2", "3"})
        self.assertEqual({row["stage"] for row in rows if int(row["step"]) == 31}, {"0"})
        for path in (out, folder_of(out, STEPS)):
            gwrun.ok(1, "eval", "--model", os.path.join(path, "model.gw"), *SMALL[:2])
        self.assertEqual(gwrun.run(1, "show", out).returncode, 0)

    def test_spread_momentum(self):
        """What `sharded` ranks own of each shard; and replicas that differ."""
        words = "--comm sharded --momentum 0.9 --checkpoint-every 1000"
        whole = self.train(2, words)
        out = self.begin(4, words, "--mesh data=2,pipe=2")
        self.resume(2, "auto", words, out=out)
        self.assertEqual(gwrun.model(out), gwrun.model(whole))
        words = "--comm local:period=4"
        mine, theirs = (self.begin(ranks, words, more, steps=6)
                        for ranks, more in ((2, ""), (4, "--mesh pipe=2")))
        self.assertEqual(gwrun.model(folder_of(mine, 6)),
                         gwrun.model(folder_of(theirs, 6)))
        said = self.resume(2, theirs, words, "--steps 8")[1]
        for part in ("4 ranks then, 2 now: what --comm local carried", "parameters differed over"):
            self.assertIn(part, said)

    def test_check(self):
        """It says what the run would say, and leaves the folder alone."""
        out = self.begin(2, "--mesh pipe=2", steps=4)
        before = sorted(os.listdir(out))
        for words in ("", "--mesh tensor=2 --checkpoint-every 5"):
            gwrun.clean(2, "train", *SMALL, "--check", "--resume", "auto", "--out", out,
                        *words.split())
        for words, part in (("--seed 2", "--seed '1', and here it is '2'"),
                            ("--data synthetic:samples=500,features=20", "other data")):
            self.assertIn(part, self.refused(2, out, "--check", words))
        self.assertEqual(sorted(os.listdir(out)), before)

    def test_what_is_dropped_is_told(self):
        words = "--compress topk --comm local:period=4 --microbatches 2"
        out = self.begin(4, words, "--mesh tensor=2")
        error = self.refused(4, out, words, "--mesh pipe=2 --resume-strict")
        self.assertIn("--resume-strict: resume: --mesh data=2,tensor=2 then, pipe=2,data=2 now: "
                      "residuals of error feedback start anew", error)
        resumed, _ = self.resume(4, out, words, "--mesh pipe=2 --timetable gpipe")
        told = gwrun.run_json(resumed)["resumed"]
        self.assertEqual(told["changed"], ["--timetable '1f1b' then, 'gpipe' now",
                                           "--mesh 'data=2,tensor=2' then, 'pipe=2,data=2' now"])
        self.assertIn("--mesh data=2,tensor=2 then, pipe=2,data=2 now: what --comm local carried "
                      "from step to step is dropped", told["dropped"])
        error = self.refused(4, out, words, "--mesh tensor=2 --tensor-split columns "
                             "--resume-strict")
        self.assertIn("--tensor-split pairs then, columns now: residuals", error)

    def test_rows_without_columns_of_a_mesh(self):
        """A file that is continued keeps its columns."""
        out = self.begin(2, "--microbatches 2")
        whole = self.train(2, "--microbatches 2")
        self.resume(4, "auto", "--microbatches 2 --mesh pipe=2", out=out)
        self.assertEqual(gwrun.losses(out), gwrun.losses(whole))
        self.assertNotIn("stage", gwrun.batches(out)[0])
        self.assertEqual(len(gwrun.batches(out)), 2 * HALF + 4 * (STEPS - HALF))

    def test_copied_without_rows(self):
        """What is written from here on has the columns of the mesh that it is of."""
        for then, now in (("", "--mesh pipe=2"), ("--mesh pipe=2", "")):
            with self.subTest(then=then, now=now):
                out = self.begin(2, then, steps=6)
                alone = os.path.join(self.new(), "copy", "step")
                shutil.copytree(folder_of(out, 6), alone)
                words = (now, "--checkpoint-every 1000 --steps")
                resumed, said = self.resume(2, alone, *words, 8)
                self.assertIn("the rows of the steps before are not beside the checkpoint", said)
                self.assertEqual(("stage" in gwrun.batches(resumed)[0]), "pipe" in now)
                self.resume(2, "auto", *words, 10, out=resumed)  # these are there
                rows = gwrun.batches(resumed)
                self.assertEqual([int(row["step"]) for row in rows], [7, 7, 8, 8, 9, 9, 10, 10])
                self.assertEqual({row.get("stage") for row in rows},
                                 {"0", "1"} if now else {None})
                pipe = (gwrun.run_json(resumed)["results"]["summary"]["dimensions"] or {}).get("pipe")
                self.assertEqual(pipe is not None and pipe["bytes"] > 0, "pipe" in now)

    # ---- damage ----

    def test_damaged(self):
        words = "--mesh pipe=2 --microbatches 2"
        out = self.begin(2, words)
        folder = folder_of(out)
        rank = [rank_file(folder, 0), rank_file(folder, 1)]
        for number, data, part in (
                (1, forged(rank[1], b"blocks", 2, 2 ** 63), "its blocks do not fit"),
                (1, forged(rank[1], b"blocks", 4, 3), "its blocks do not fit"),
                (0, forged(rank[0], b"sizes", 5, 10), "10 parameters, this model has"),
                (0, forged(rank[0], b"sizes", 6, 2 ** 40), "claims more than it holds"),
                (0, forged(rank[0], b"sizes", 1, 3), "claims more than it holds"),
                (1, rank[1][:8] + struct.pack("<I", 4) + rank[1][12:],
                 "format version 4, this gradwire reads 1"),
                (0, b"GWCKRANK" + rank[0][8:], "not a gradwire 'GWRANK01' file"),
                (1, rank[1][:-9], "rank-00001.gw: "),
                (1, rank[0], "the file of rank 1 is of another part of the model")):
            with self.subTest(part=part):
                put_rank(folder, number, data)
                self.assertIn(part, self.refused(2, out, words))
                put_rank(folder, number, rank[number])
        put_rank(folder, 1, rank[0])
        self.assertIn("no rank's file has parameter", self.refused(1, out))
        put_rank(folder, 1, rank[1])
        gwrun.flip(os.path.join(folder, "rank-00001.gw"), 500)
        self.assertIn("holds no complete checkpoint", self.refused(2, out, words))

    # ---- what disturbs a run ----

    def test_terminated(self):
        """The checkpoint is of the step at which all ranks stopped."""
        words = ("--mesh", "pipe=2,tensor=2", "--microbatches", 3, "--timetable", "zb",
                 "--momentum", 0.9, "--checkpoint-every", 1000000)
        out = self.new()
        with faultcase.Started(4, *SMALL, *words, "--epochs", 1000000, "--overhead", 0, "--out",
                               out, log=out + ".log") as run:
            self.assertEqual(run.stop(signal.SIGTERM, 3), 128 + signal.SIGTERM, run.text())
        told = gwrun.run_json(out)["results"]
        done = told["steps"]
        self.assertEqual((told["stopped_by"], len(gwrun.batches(out))), ("SIGTERM", 4 * done))
        self.assertEqual(os.listdir(os.path.join(out, "model.ckpt.d")),
                         [os.path.basename(folder_of(out, done))])
        more = ("--epochs", 1000000, "--steps", done + 5)
        self.resume(4, "auto", *words, *more, out=out)
        whole = self.new()
        gwrun.train(4, whole, *SMALL, *words, *more)
        self.assertEqual(gwrun.model(out), gwrun.model(whole))
        self.assertEqual(gwrun.losses(out), gwrun.losses(whole))

    def test_killed(self):
        """A rank dies while others wait for its hops: the launcher ends them, and resumed, the run
        is one that nobody killed."""
        words = [*killcase.MODEL[:-2], "--mesh", "pipe=2", "--microbatches", 4, "--timetable", "zb",
                 "--compress-activations", "qsgd", "--checkpoint-every", 7]
        whole = self.new()
        gwrun.train(2, whole, *words, "--steps", 200)
        for attempt in range(10):
            out = self.new()
            slower = [*words, "--steps", 200, "--inject-skew", f"1:{2 ** attempt}ms"]
            run = killcase.Victim(2, out, slower, killcase.draw(5 + attempt, "pipe"))
            if run.kill_trained() and run.kill_trained():
                break
        self.assertEqual(run.kills, 2)
        run.finish()
        self.assertEqual(run.faults, [])
        self.assertEqual(killcase.differences(killcase.outcome(out), killcase.outcome(whole)), [])

    def test_nan_in_a_middle_stage(self):
        """A delta that overflows its codec on the way; no checkpoint is kept of it."""
        out = self.new()
        done = gwrun.run(3, "train", *SMALL, "--activation", "relu", "--lr", "1e5", "--overhead", 0,
                         "--mesh", "pipe=3", "--microbatches", 2, "--compress-deltas", "fp16",
                         "--checkpoint-every", 2, "--out", out)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertRegex(done.stderr, r"step 2, rank 1, layer 1: the gradient is no longer finite")
        self.assertFalse(os.path.exists(folder_of(out, 2)))

    def test_parameters_that_are_not_finite(self):
        """An update of one rank overflows: the layer's number is the whole model's."""
        out = self.begin(2, "--mesh pipe=2 --stages 1,3")
        folder = folder_of(out)
        data = rank_file(folder, 1)
        _, start, _ = field(data, b"parameters")
        put_rank(folder, 1, data[:start] + struct.pack("<f", float("inf")) + data[start + 4:])
        done = gwrun.run(2, "train", *SMALL, "--overhead", 0, "--mesh", "pipe=2", "--stages", "1,3",
                         "--out", self.new(), "--resume", out, "--checkpoint-every", 1000,
                         "--steps", HALF)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("layer 1: parameters are no longer finite", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
