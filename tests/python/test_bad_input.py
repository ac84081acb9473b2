"""Every mistake of a user costs one clear line and exit status 2, on one rank and on three."""

import gzip
import json
import os
import re
import shutil
import struct
import tempfile

import gwrun

SMALL = "synthetic:samples=300,features=16,classes=4"


def idx(dims, body):
    return struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims) + body


class BadInput(gwrun.Case):
    """Of a test's mistakes in words, which are read before MPI starts, the first is made on 3 ranks, too; `everywhere`: each."""

    everywhere, launched = False, False

    def refused(self, *words, says, checked=True, one=0, **more):
        """On `one` rank (0: without a launcher), and there by --check, if that looks at this mistake."""
        line = self.line(one, *words, says=says, **more)
        if self.everywhere or not self.launched:
            self.assertEqual(self.line(3, *words, says=says, **more), line)
            self.launched = True
        if words[:1] == ("train",):
            done = gwrun.run(one, words[0], "--check", "--quiet", *words[1:], **more)
            self.assertEqual((done.stderr, done.returncode), (line, 2) if checked else ("", 0))

    def line(self, ranks, *words, says, **more):
        """The one that is said."""
        with self.subTest(ranks=ranks, words=words):
            return gwrun.refusal(gwrun.run(ranks, *words, **more), *says)

    # ---- options ----

    def test_options(self):
        train = ("train", "--data", SMALL)
        self.refused("trian", says=["trian", "did you mean 'train'?"])
        self.refused("xyz", says=["xyz", "must be", "eval", "trace-check"])
        self.refused("rport", says=["did you mean 'report'"])
        self.refused("../gradwire", says=["unknown command"])
        self.refused(*train, "--comm", "topk", says=["unknown strategy 'topk': it is a codec: write --compress topk"])
        self.refused(*train, "--compress", "powersgd", says=["it is a strategy: write --comm powersgd"])
        self.refused(*train, "--comm", "ring", says=["it is an algorithm: write --comm allreduce:algo=ring"])
        self.refused("bench", "foo", says=["foo", "codec"])
        self.refused("bench", "codec", "--repeats", "0", says=["repeats"])
        self.refused("list", "all", says=["all"])
        self.refused(*train, "--bacth", 3, says=["bacth", "batch"])
        self.refused(*train, "--lr", "-1", says=["lr", "-1", "from"])
        self.refused(*train, "--lr", "nan", says=["lr", "nan"])
        self.refused(*train, "--batch", "0", says=["batch", "0"])
        self.refused(*train, "--batch", "12x", says=["batch", "12x"])
        self.refused(*train, "--batch", "99999", says=["batch", "99999"])
        self.refused(*train, "--epochs", says=["epochs", "value"])
        self.refused(*train, "--layers", "10,,2", says=["layers"])
        self.refused(*train, "--activation", "swish", says=["swish", "relu"])
        self.refused(*train, "--validation", "0.95", says=["validation"])
        self.refused(*train, "--output", "tanh", says=["tanh", "softmax|sigmoid"])
        for text in ("hee", "he,", "he,,he"):
            self.refused(*train, f"--init={text}", says=[f"init={text}: must be auto, he or xavier"])
        for n in (2, 70):
            self.refused(*train, "--init", ",".join(["he"] * n),
                         says=[f"init: {n} given, and the network has 3 layers"])
        for option, n in (("limit", 251), ("limit-test", 51)):
            self.refused(*train, f"--{option}", n, says=[f"--{option} {n}: ", f"give 1 to {n - 1}"])
            self.refused(*train, f"--{option}", 2 ** 32, says=[option, "4294967296", "from 1"])
        self.refused(*train, "--limit", 20, says=["batch 64", "20"])
        self.refused(*train, "--replicate", 4294967295, says=["--replicate", "250 training samples"])
        self.refused(*train, "--replicate", 0, says=["replicate", "from 1"])
        self.refused(*train, "--image-size", "56X58", says=["image-size=56X58: must be ROWSxCOLS"])
        for command in (train, ("eval", "--model", "m")):
            self.refused(*command, "--image-size", "5x5", "--image-scale", 2,
                         says=["--image-size excludes --image-scale: "])
        self.refused(*train, "--batch", 8, "--local-batch", 8, says=["--local-batch excludes --batch"])
        self.refused(*train, "--trace", says=["--trace needs --out DIR: "])
        self.refused(*train, "--collectives", says=["--collectives", "--out"])
        self.refused(*train, "--collectives", "--out", self.path("out"),
                     "--profile", "off", says=["--collectives excludes --profile off: "])
        self.refused(*train, "--trace", "--profile", "off", "--out", self.path("out"), says=["--profile timers"])
        self.refused(*train, "--overhead", 5, "--profile", "off", says=["--overhead"])
        self.refused(*train, "--out", "", says=["train: out is empty: give DIR"])
        self.refused(*train, "--error-feedback", "dgc", "--momentum", "0.0",
                     says=["--error-feedback dgc needs --momentum X: "])
        self.refused(*train, "--time-limit", "3 s", says=["time-limit=3 s: must be a time"])
        for text in ("1", "1:", ":1ms", "x:1ms", "-1:1ms", "1:-1ms", "1:0", "1:nan", "1:2min",
                     "1:1ms,", "1:61", "99999999999:1ms"):
            self.refused(*train, f"--inject-skew={text}", says=[f"inject-skew={text}: must be"])
        self.refused(*train, "--inject-skew", "3:1ms", says=["--inject-skew", "rank 3"], one=3)
        self.refused(*train, "word", says=["word"])

    def test_text(self):
        """Text that run.json cannot hold is refused before the run, not after it."""
        out = self.path("out")
        latin = "f\udcfcr"  # the byte 0xfc, which is no UTF-8
        for words in (["--out", out + latin], ["--out", out, "--data", latin],
                      ["--out", out, "--papi-group=" + latin]):
            self.refused("train", "--data", SMALL, *words, says=["is not UTF-8", "--out"])
        self.refused("bench", "codec", "--codecs", latin, "--json", out, says=["is not UTF-8", "--json"])
        self.assertEqual(os.listdir(self.dir), [])

    def options(self):
        """(command, option) of one option of each command that takes a value: one function reads them all."""
        listed = json.loads(gwrun.said(gwrun.GRADWIRE, "list", "--json"))
        for command in listed["commands"]:
            for option in command["options"]:
                if option["value"] is not None and option["name"] not in ("layers", "microbatches"):  # these may be empty
                    yield command["name"].split(), "--" + option["name"]
                    break

    def alone(self, *words):
        """Without a launcher: that all ranks say it at once is tested elsewhere."""
        return gwrun.refusal(gwrun.run(0, *words))

    def test_control_characters(self):
        """A terminal, a script and a page take them for commands: no command takes one, and the line shows which it
        was."""
        options = list(self.options())
        for command, option in options:
            with self.subTest(command=command, option=option):
                said = self.alone(*command, option, "a\nb\x1b[31m\u009b\x7f\u00e9")
                self.assertIn(r"'a\nb\x1b[31m\u009b\x7fé' contains a control character", said)
        self.assertGreater(len(options), 5)
        self.assertIn("contains a control character", self.alone("replay", "a\tb", "--out", "c"))
        env = {**os.environ, "GRADWIRE": "--out 'a\nb'", "GW_DATA_DIR": self.path("a\nb")}
        shutil.copytree(self.folder(), os.path.join(env["GW_DATA_DIR"], "fashion-mnist"))
        for words in (("train", "--steps", "1"), ("replay", os.path.join(gwrun.SOURCE, "profiles/resnet18.json"),
                                                  "--out", self.dir, "--overwrite")):
            gwrun.refusal(gwrun.run(2, *words, env=env), r"a\nb")
        for tool in ("run", "report", "table", "export", "claims", "compare", "trace-check", "show", "supervise",
                     "tensorboard"):
            self.assertIn(r"'a\nb\x1b' contains a control character", self.alone(tool, "a\nb\x1b"))

    def test_what_is_gone(self):
        """It names what to use instead."""
        gone = re.findall(r'(?m)^X\("(.+)", "(.*)", "(.+)"\)$', gwrun.read(gwrun.SOURCE, "src/cli/gone.def"))
        self.assertGreater(len(gone), 5)
        for command, word, instead in gone:
            what = f"{command}: {word}" if word else command
            self.assertIn(f"{what} is gone: {instead}", self.alone(command, *filter(None, [word])))

    def test_empty_texts(self):
        """A message or a label could not show them."""
        for command, option in self.options():
            with self.subTest(command=command, option=option):
                said = self.alone(*command, option, "")
                self.assertRegex(said, f"{option[2:]}( is empty: give |=: must be )")
                self.assertNotIn("''", said)

    def test_given_twice(self):
        train = ("train", "--data", SMALL)
        for option, text, name in (("--compress", "qsgd:bits=2,bits=4", "bits"), ("--comm", "ps:algo=ring,algo=sra", "algo"),
                                   ("--compress", "none;layer1=qsgd:bits=2,bits=2", "bits"),
                                   ("--comm", "ps:algo=(hier:inner=ring,inner=sra)", "inner"),
                                   ("--data", SMALL + ",samples=9", "samples")):
            self.refused(*train, option, text, says=[f"{name} is given twice"])
        for text in ("none;*.bias=fp16;*.bias=none", "none;layer1=fp16;layer1=none"):
            self.refused(*train, "--compress", text, says=["two rules for "])
        self.refused(*train, "--compress", "none;min_bytes=1;min_bytes=2", says=["min_bytes is given twice"])
        self.refused(*train, "--mesh", "data=1", says=["--mesh data=1 takes 1 rank, and there are 3"], one=3)
        self.refused(*train, "--mesh", "data=1,data=1", says=["data is given twice"])

    def test_text_of_the_environment(self):
        folder = self.path("f\udcfcr", "fashion-mnist")
        shutil.copytree(self.folder(), folder)
        out = self.path("out")
        done = gwrun.run(2, "train", "--steps", 3, "--batch", 4, "--out", out,
                         env={**os.environ, "GW_DATA_DIR": os.path.dirname(folder)})
        gwrun.refusal(done, "its name is not UTF-8")
        self.assertFalse(os.path.exists(out))

    def test_registries(self):
        train = ("train", "--data", SMALL)
        self.refused(*train, "--comm", "alreduce", says=["strategy", "allreduce"])
        self.refused(*train, "--comm", "ps:algo=sar", says=["algorithm", "sra"])
        self.refused(*train, "--compress", "fp61", says=["codec", "fp16"])
        self.refused(*train, "--comm", "iallreduce:buckets=1M", says=["buckets", "bucket"])
        self.refused(*train, "--comm", "iallreduce:bucket=1", says=["bucket", "1"])
        self.refused(*train, "--comm", "iallreduce:bucket=4", says=["bucket", "4096"])
        self.refused(*train, "--compress", "qsgd:bits=9", says=["bits", "9"])
        self.refused(*train, "--compress", "none:bits=9", says=["none", "bits"])
        self.refused(*train, "--comm", "./nowhere.so", says=["nowhere.so"])

    def test_plugins(self):
        """unit/test_plugins.c tests what can be wrong with a plugin; here, all ranks must agree."""
        self.everywhere = True
        lame = os.path.join(os.environ["BUILD"], "tests", "libplugin_lame.so")
        self.refused("train", "--data", SMALL, "--compress", lame, says=[lame, "abi", "rebuild"])
        self.refused("train", "--data", SMALL, "--comm", "libplugin_lame.so",
                     says=["unknown strategy 'libplugin_lame.so'"],
                     env={**os.environ, "LD_LIBRARY_PATH": os.path.dirname(lame)})

    def test_chains(self):
        for codec, *says in (("qsgd+zlip", "zlip", "zlib"), ("qsdg+zlib", "qsdg", "qsgd"),
                             ("none+zlib", "none+zlib", "use zlib alone"),
                             ("qsgd+zlib+zlib", "qsgd+zlib+zlib", "more than one stage"),
                             ("qsgd+topk", "topk", "cannot follow"),
                             ("qsgd+zlib:level=(10)", "level", "10"),
                             ("qsgd:bits=(4+zlib)", "bits", "4+zlib"),
                             ("zlib:level=3,strategy=rle", "level=3", "rle"),
                             ("./no+where/codec.so", "./no+where/codec.so"),
                             ("qsgd+./nowhere.so", "./nowhere.so")):
            self.refused("train", "--data", SMALL, "--compress", codec, says=says)

    def test_combination(self):
        self.everywhere = True
        self.refused("train", "--data", SMALL, "--comm", "allreduce:algo=native", "--compress",
                     "qsgd", says=["native", "qsgd", "sra"])
        self.refused("train", "--data", SMALL, "--comm", "allreduce:algo=native", "--compress",
                     "fp16+zlib", says=["native", "fp16+zlib", "sra"])

    def test_more_buckets_than_communicators(self):
        """MPICH has 2048, and int8sum needs one a bucket: 3675."""
        done = gwrun.run(2, "train", "--data", "synthetic:samples=640", "--comm",
                         "iallreduce:bucket=256,algo=native", "--compress", "int8sum")
        gwrun.refusal(done, "int8sum", "communicator", "larger buckets", "algo=sra")

    def test_emulated_link(self):
        """The description of the testbed is believed only if it can be true."""
        for hosts, rate, says in (("4", None, "GRADWIRE_LINK_RATE"),
                                  (None, "1000000000", "GRADWIRE_TESTBED"), ("4", "1gbit", "1gbit"),
                                  ("0", "1000000000", "'0'"), ("4", "", "''"), ("-1", "5", "-1")):
            env = dict(os.environ)
            env.update({name: value for name, value in (("GRADWIRE_TESTBED", hosts),
                                                        ("GRADWIRE_LINK_RATE", rate))
                        if value is not None})
            self.refused("train", "--data", SMALL, "--out", self.path("x"),
                         says=[says], env=env)
        env = dict(os.environ, GRADWIRE_TESTBED="2", GRADWIRE_LINK_RATE="1000000000",
                   GRADWIRE_SLOW_HOSTS="the second")
        self.refused("train", "--data", SMALL, says=["GRADWIRE_SLOW_HOSTS", "the second"], env=env)
        del env["GRADWIRE_SLOW_HOSTS"]
        for name, text in (("HOST_RATES", "1/2"), ("HOST_RATES", "1/2,3"), ("HOST_RATES", "1/2,3/4,5/6"),
                           ("HOST_RATES", "1/2,3/0"), ("HOST_RATES", "1/2,3/4 "),
                           ("LINK_PIECE", "10"), ("LINK_PIECE", "10x"), ("LINK_PIECE", "0x1500"),
                           ("LINK_PIECE", "x1500"), ("LINK_PIECE", "10x1500x"), ("RACKS", ""), ("RACKS", "2"),
                           ("RACKS", "1x5x1"), ("RACKS", "3x5x1"), ("RACKS", "4x5x1"), ("RACKS", "2x0x1"),
                           ("RACKS", "2x5x0"), ("RACKS", "2x5x1x"), ("RACKS", "2x5")):
            self.refused("train", "--data", SMALL, says=[f"GRADWIRE_{name}='{text}'"],
                         env=dict(env, **{f"GRADWIRE_{name}": text}))
        self.assertEqual(os.listdir(self.dir), [])

    def test_synthetic(self):
        self.refused("train", "--data", "synthetic:sample=10", says=["sample", "samples"])
        self.refused("train", "--data", "synthetic:samples=0", says=["samples"])

    # ---- data ----

    def folder(self, **parts):
        """A small set of four IDX files; parts replace a file's bytes."""
        path = tempfile.mkdtemp(dir=self.dir)
        good = {"train-images-idx3-ubyte": idx((6, 2, 2), bytes(24)),
                "train-labels-idx1-ubyte": idx((6,), bytes(range(6))),
                "t10k-images-idx3-ubyte": idx((3, 2, 2), bytes(12)),
                "t10k-labels-idx1-ubyte": idx((3,), bytes(3))}
        for name, data in good.items():
            key = name.split("-idx")[0].replace("-", "_")
            data = parts.get(key, data)
            suffix = ".gz" if data[:2] == b"\x1f\x8b" else ""
            gwrun.write(os.path.join(path, name + suffix), data)
        return path

    def bad_data(self, path, *says, **more):
        self.everywhere = True
        self.refused("train", "--batch", 2, "--data", path, says=says, **more)

    def test_good_folder(self):
        gwrun.clean(3, "train", "--quiet", "--batch", 2, "--data", self.folder())

    def test_data(self):
        images = idx((6, 2, 2), bytes(range(24)))
        packed = gzip.compress(images)
        self.bad_data(self.folder(train_images=packed[:-12]), "train-images", checked=False)
        self.bad_data(self.folder(train_images=packed[:-6] + b"XX" + packed[-4:]), "train-images",
                      checked=False)
        self.bad_data(self.folder(train_images=images[:-1]), "train-images", "truncated: its header promises 24 ",
                      "holds 23 at most")
        self.bad_data(self.folder(train_images=b"\1" + images[1:]), "train-images", "magic")
        self.bad_data(self.folder(train_labels=idx((5,), bytes(5))), "5", "6")
        self.bad_data(self.folder(t10k_labels=idx((3,), b"\0\1\377")), "t10k-labels", "255", "0 to ")
        self.bad_data(self.folder(t10k_images=idx((3, 3, 2), bytes(18))), "t10k-images")
        self.bad_data(tempfile.mkdtemp(dir=self.dir), "train-images")
        self.bad_data(self.path("nowhere"), "nowhere")

    # ---- the run folder ----

    def test_out(self):
        self.everywhere = True
        small = ("train", "--quiet", "--data", SMALL, "--epochs", 1)
        out = self.path("run")
        gwrun.clean(1, *small, "--out", out)
        self.refused(*small, "--out", out, says=[out, "--overwrite"], checked=False)
        kept = sorted(os.listdir(out))
        self.refused(*small, "--out", out, "--overwrite", "--batch", 9999, says=["9999"])
        self.assertEqual(sorted(os.listdir(out)), kept)  # a refused run costs nobody's results
        gwrun.clean(2, *small, "--out", out, "--overwrite")
        self.refused(*small, "--out", "/proc/nowhere/run", says=["/proc/nowhere"],
                     checked=False)
        plain = self.path("file")
        gwrun.write(plain, "")
        self.refused(*small, "--out", plain, says=[plain], checked=False)

    def test_left_over(self):
        """Partial files of a killed run are removed when the folder is used again; other files stay."""
        out = self.path("run")
        os.mkdir(out)
        kept = [".notes.txt", ".notes.12ab.tmp"]
        for name in kept + [".run.json.fedcba9876543210.tmp", ".batches.csv.0123456789abcdef.tmp"]:
            gwrun.write(os.path.join(out, name), "")
        gwrun.train(2, out, "--data", SMALL, "--epochs", 1)
        hidden = [name for name in os.listdir(out) if name.startswith(".")]
        self.assertEqual(sorted(hidden), sorted(kept))

    def test_model(self):
        self.everywhere = True
        self.refused("eval", says=["--model"])
        self.refused("eval", "--model", self.path("none"), says=["none"])
        out = self.path("run")
        gwrun.train(1, out, "--data", SMALL, "--epochs", 1)
        self.refused("eval", "--model", out, "--data", "synthetic:samples=300,features=17,classes=4",
                     says=["16", "17"])
        gwrun.flip(os.path.join(out, "model.gw"), 200)
        self.refused("eval", "--model", out, "--data", SMALL, says=["model.gw", "checksum"])

    # ---- ranks that differ; tests/mpi/test_alike.c takes every option ----

    def apart(self, first, second, *says):
        """Rank 0 is started by the words `first`, rank 1 by `second`: one line, and no hang."""
        self.apart_programs([gwrun.GRADWIRE, *map(str, first)], [gwrun.GRADWIRE, *map(str, second)], *says)

    def apart_programs(self, first, second, *says):
        with self.subTest(first=first, second=second):
            done = gwrun.finished([gwrun.MPIEXEC, "-n", "1", *first, ":", "-n", "1", *second])
            gwrun.refusal(done, *says, "give all ranks the same")

    def test_ranks_that_differ(self):
        train = ["train", "--data", SMALL]
        for option, one, two in (("seed", 1, 2), ("lr", 0.1, 0.2), ("steps", 3, 4), ("batch", 32, 64),
                                 ("compress", "threshold:value=0.1", "threshold:value=0.2"),
                                 ("comm", "allreduce", "iallreduce:progress=thread")):
            self.apart([*train, f"--{option}", one], [*train, f"--{option}", two],
                       f"train: rank 1 has --{option} '{two}', and rank 0 --{option} '{one}'")
        self.apart(train, [*train, "--weight-decay", 0.1], "rank 1 has --weight-decay '0.1', and rank 0 ",
                   "--weight-decay '0'")
        self.apart(train, ["eval", "--model", "none"], "rank 1 has command 'eval', and rank 0 command 'train'")
        self.apart(["doctor"], train, "rank 1 has command 'train', and rank 0 command 'doctor'")
        self.apart(["bench", "step"], ["bench", "codec"], "'bench codec'", "'bench step'")
        self.apart(["bench", "step", "--seed", 3], ["bench", "step"], "rank 1 has --seed '1'")
        self.apart(["plan"], ["plan", "--top", 3], "rank 1 has --top '3', and rank 0 --top '15'")
        self.apart_programs([gwrun.GRADWIRE, *train], ["env", "GW_SIMD=scalar", gwrun.GRADWIRE, *train],
                            "rank 1 has $GW_SIMD 'scalar', and rank 0 no $GW_SIMD")

    def test_files_that_differ(self):
        profiles = [os.path.join(gwrun.SOURCE, "profiles", f"{name}.json") for name in ("resnet18", "gpt2-124m")]
        out = self.path("out")
        self.apart(["replay", profiles[0], "--out", out], ["replay", profiles[1], "--out", out],
                   "rank 1 has file '", "gpt2-124m.json: ", "resnet18.json: ")
        models = []
        for seed in (1, 2):
            folder = self.path(str(seed))
            gwrun.train(1, os.path.join(folder, "run"), "--data", SMALL, "--epochs", 1, "--seed", seed)
            models.append(f"cd {folder} && exec {gwrun.GRADWIRE} eval --data {SMALL} --model run")
        self.apart_programs(["sh", "-c", models[0]], ["sh", "-c", models[1]], "rank 1 has file 'run/model.gw: ")

    def test_launchers(self):
        """That of another MPI starts processes that each believe to be alone; what says 1, or is of an
        allocation or of a group around the ranks, is no such one."""
        train = ("train", "--data", SMALL, "--quiet", "--epochs", 1)
        names = {"WORLD_SIZE": 2, "OMPI_COMM_WORLD_SIZE": 3, "PMI_SIZE": 2, "MV2_COMM_WORLD_SIZE": 2,
                 "SLURM_STEP_NUM_TASKS": 4, "PMIX_RANK": 1}
        clean = {k: v for k, v in os.environ.items() if k not in names}
        for name, n in names.items():
            for words in (train, ("bench", "layers"), ("eval", "--model", "none")):
                with self.subTest(name=name, words=words):
                    done = gwrun.run(0, *words, env={**clean, name: str(n)})
                    gwrun.refusal(done, f"MPI has 1 rank, but {name}={n} says that ",
                                  f"unset {name} if each is to run alone")
        for more in ({"WORLD_SIZE": "1"}, {"SLURM_NTASKS": "4"}, {"PMIX_RANK": "0"}):
            gwrun.clean(0, *train, env={**clean, **more})
        gwrun.clean(2, *train, env={**clean, "WORLD_SIZE": "8"})
