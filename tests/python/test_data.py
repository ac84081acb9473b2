"""Which samples a run trains on, and as what: limited, replicated and resized data sets give the bits of
a folder that holds just these samples; sigmoid outputs and initial weights by layer."""

import gzip
import os
import struct
import tempfile

import gwrun

LIMIT, TESTED, CLASSES = 90, 40, 10
TRAIN = ("--layers", "12", "--epochs", 1, "--batch", 32, "--lr", 0.1, "--profile", "timers",
         "--ceilings", "off")  # the last batch of an epoch is short


def pixel(of, i, j):
    return (i * 37 + j * 11 + i * j + of) % 256


def write(folder, name, dims, body):
    head = struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims)
    with gzip.open(os.path.join(folder, name + ".gz"), "wb", compresslevel=1) as file:
        file.write(head + bytes(body))


class Data(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.runs = 0

    def folder(self, train, test, times=1, size=(5, 7), classes=CLASSES):
        """Of the first samples, images of 5 x 7 as they are or as `size`."""
        path = tempfile.mkdtemp(dir=self.dir)
        rows, cols = size
        at = [r * 5 // rows * 7 + c * 7 // cols for r in range(rows) for c in range(cols)]
        for name, n, of in (("train", train, 0), ("t10k", test, 3)):
            images = [pixel(of, i, j) for i in range(n) for j in at]
            labels = [(i + of) % classes for i in range(n)]
            if of:
                write(path, f"{name}-images-idx3-ubyte", (n, rows, cols), images)
                write(path, f"{name}-labels-idx1-ubyte", (n,), labels)
            else:
                write(path, f"{name}-images-idx3-ubyte", (n * times, rows, cols), images * times)
                write(path, f"{name}-labels-idx1-ubyte", (n * times,), labels * times)
        return path

    def train(self, ranks, folder, *words):
        self.runs += 1
        out = self.path(f"run{self.runs}")
        run = gwrun.train(ranks, out, "--data", folder, *TRAIN, *words)
        return run, gwrun.losses(out), gwrun.model(out), run["results"]["test_accuracy"]

    def assert_same(self, one, other):
        self.assertEqual(one[1:], other[1:])
        self.assertEqual((one[0]["data"]["train"], one[0]["data"]["validation"]),
                         (other[0]["data"]["train"], other[0]["data"]["validation"]))

    # ---- which samples ----

    def test_cut(self):
        """On other numbers of ranks: tests/mpi; here also with a server that has no samples, and over a mesh."""
        whole, written = self.folder(150, 60), self.folder(LIMIT, TESTED)
        three = self.folder(LIMIT, TESTED, times=3)
        cut = ("--limit", LIMIT, "--limit-test", TESTED)
        for ranks, *words in ((2,), (3, "--comm", "ps"), (3, "--data-layout", "sharded", "--comm", "ps"),
                              (2, "--mesh", "pipe=2")):
            with self.subTest(ranks=ranks, words=words):
                self.assert_same(self.train(ranks, whole, *cut, "--replicate", 3, *words),
                                 self.train(ranks, three, *words))
        short, plain = self.train(2, whole, *cut), self.train(2, written)
        self.assert_same(short, plain)
        self.assertEqual(short[0]["data"]["hash"], plain[0]["data"]["hash"])
        data = short[0]["data"]
        self.assertEqual([data[name] for name in ("train", "test", "limit", "limit_test", "replicate")],
                         [LIMIT, TESTED, LIMIT, TESTED, 1])

    def test_cut_synthetic(self):
        """Told in run.json, and none where nothing was cut."""
        data = self.train(2, "synthetic:samples=300,features=8", "--limit", 100, "--replicate",
                          2)[0]["data"]
        self.assertEqual([data[name] for name in ("train", "limit", "limit_test", "replicate")],
                         [200, 100, None, 2])

    def test_validation(self):
        """Of the limited samples, each once; and the rest of them is replicated."""
        whole, written = self.folder(150, 60), self.folder(LIMIT, TESTED)
        cut = ("--limit", LIMIT, "--limit-test", TESTED, "--validation", 0.2)
        once = self.train(2, whole, *cut)
        self.assert_same(once, self.train(2, written, "--validation", 0.2))
        run = self.train(2, whole, *cut, "--replicate", 5)[0]
        self.assertEqual((run["data"]["train"], run["data"]["validation"]), (5 * 72, 18))

    def test_resume(self):
        """From a folder that has the samples; not with others, nor from other numbers of them."""
        whole, written = self.folder(150, 60), self.folder(LIMIT, TESTED)
        out = self.path("out")
        cut = ("--limit", LIMIT, "--limit-test", TESTED)
        gwrun.train(2, out, *TRAIN, "--data", whole, *cut, "--steps", 3, "--checkpoint-every", 3,
                    "--output", "sigmoid")
        resume = ("train", *TRAIN, "--resume", out, "--output", "sigmoid")
        gwrun.clean(2, *resume, "--data", written)
        for words, says in ((("--data", whole), "other data"),
                            (("--data", whole, *cut[:2]), "other data"),
                            (("--data", whole, *cut, "--replicate", 2), "--replicate '1', and here"),
                            (("--data", whole, *cut, "--image-size", "5x7"), "--image-size ''"),
                            (("--data", whole, *cut, "--output", "softmax"),
                             "--output 'sigmoid', and here it is 'softmax'")):
            gwrun.refusal(gwrun.run(2, *resume, *words), says)

    # ---- as what ----

    def test_image_size(self):
        """The bits of images that were written in this size; as many pixels as report E has."""
        small = self.folder(LIMIT, TESTED)
        for size in ((3, 9), (10, 14)):
            with self.subTest(size=size):
                big = self.folder(LIMIT, TESTED, size=size)
                run = self.train(2, small, "--image-size", f"{size[0]}x{size[1]}")
                self.assert_same(run, self.train(2, big))
                self.assertEqual(run[0]["data"]["image"], list(size))
        self.assert_same(run, self.train(2, small, "--image-scale", 2))
        out = self.path("out")
        words = ("--limit", 64, "--limit-test", 50, "--image-size", "56x58")
        run = gwrun.train(1, out, "--layers", "", "--batch", 32, "--epochs", 1, *words)
        self.assertEqual(run["data"]["features"], 3248)
        done = gwrun.ok(2, "eval", "--model", out, *words[2:])
        self.assertIn(f"accuracy {run['results']['test_accuracy']:.4f}", done.stdout)
        self.assertIn(" 50 samples", done.stdout)
        gwrun.refusal(gwrun.run(1, "eval", "--model", out, "--image-scale", 2), "3248 inputs")

    def test_cifar(self):
        """Colour images and their classes; of CIFAR-100 the fine label."""
        def record(i, labels):
            return bytes([7, i % 100][-labels:] if labels == 2 else [i % 10]) + bytes((i * 3 + j) % 256 for j in range(3072))
        for labels, names in ((1, [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]),
                              (2, ["train.bin", "test.bin"])):
            folder = tempfile.mkdtemp(dir=self.dir)
            for name in names:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(b"".join(record(i, labels) for i in range(40)))
            with self.subTest(labels=labels):
                run, losses, *_ = self.train(2, folder, "--epochs", 3)
                data = run["data"]
                self.assertEqual([data[name] for name in ("name", "train", "test", "features", "image", "channels", "classes")],
                                 ["cifar", 40 * (len(names) - 1), 40, 3072, [32, 32], 3, 100 if labels == 2 else 10])
                self.assertLess(losses[-1], losses[0])
                run, *_ = self.train(1, folder, "--image-size", "8x9", "--data-layout", "sharded")
                self.assertEqual((run["data"]["features"], run["data"]["image"]), (3 * 72, [8, 9]))
            last, whole = os.path.join(folder, names[-1]), [record(i, labels) for i in range(5)]
            wide = len(whole[0])
            for name, body, why in (
                    (names[-1], whole[0][:-1], f"truncated: {wide - 1} bytes of image 0, expected {wide}"),
                    *((name, b"", f"{name}: holds no image") for name in names[1:]),
                    (names[-2], b"".join(whole[:4]) + b"\xff" * wide, "label 255 of image 4 is out of range")):
                path = os.path.join(folder, name)
                os.rename(path, path + ".kept")
                with open(path, "wb") as file:
                    file.write(body)
                gwrun.refusal(gwrun.run(1, "train", "--data", folder), why)
                os.rename(path + ".kept", path)
            os.truncate(last, 1 << 40)  # sparse: it would fill any memory
            gwrun.refusal(gwrun.run(1, "train", "--data", folder), "more than 268435456 images")
            os.remove(last)
            gwrun.refusal(gwrun.run(1, "train", "--data", folder), f"lacks {names[-1]}")

    # ---- the network's two ends ----

    def test_labels_of_more_bytes(self):
        """300 classes, in numbers of 2 and of 4 bytes: the same run."""
        runs = []
        for kind, code, form in (("short", 0x0b, ">H"), ("int", 0x0c, ">I")):
            folder = self.folder(300, 40, classes=256)
            for name, n in (("train", 300), ("t10k", 40)):
                os.remove(os.path.join(folder, f"{name}-labels-idx1-ubyte.gz"))
                with open(os.path.join(folder, f"{name}-labels-idx1-{kind}"), "wb") as file:
                    file.write(struct.pack(">HBBI", 0, code, 1, n) + b"".join(struct.pack(form, 299 - i) for i in range(n)))
            runs.append(self.train(2, folder))
            self.assertEqual(runs[-1][0]["data"]["classes"], 300)
            self.assertIsNone(runs[-1][0]["results"]["f1"])
        self.assert_same(*runs)

    def test_classes(self):
        """As many as the labels tell, up to all that a byte holds: trained, tested class by class, resumed."""
        ways = ((2,), (2, "--mesh", "tensor=2"), (2, "--output", "sigmoid"))
        for classes, train, test, some in ((62, 130, 70, ways), (256, 300, 60, ways[:1])):
            folder = self.folder(train, test, classes=classes)
            for ranks, *words in some:
                with self.subTest(classes=classes, ranks=ranks, words=words):
                    run, losses, whole, accuracy = self.train(ranks, folder, *words)
                    serial = self.train(1, folder, *words[words[:1] == ["--mesh"] and 2:])
                    self.assertEqual(run["data"]["classes"], classes)
                    for mine, theirs in zip(losses, serial[1]):
                        self.assertAlmostEqual(mine / theirs, 1, delta=1e-5)
                    out = self.path(f"half{self.runs}")
                    kept = (*TRAIN, "--data", folder, *words)
                    gwrun.train(ranks, out, *kept, "--steps", 2, "--checkpoint-every", 2)
                    done = gwrun.run(ranks, "train", *kept, "--out", out, "--resume", "auto")
                    self.assertEqual((done.returncode, gwrun.model(out)), (0, whole), done.stderr)
                    done = gwrun.ok(2, "eval", "--data", folder, "--model", out)
                    self.assertIn(f"accuracy {accuracy:.4f}", done.stdout)
                    self.assertEqual(len(done.stdout.splitlines()[-1].split()), classes + 1)

    def test_sigmoid_output(self):
        """The serial curve on every mesh, by both splits of the classes and none; and it is another loss,
        which the model's file and eval know of."""
        folder = self.folder(LIMIT, TESTED)
        sigmoid = ("--output", "sigmoid", "--layers", "12,9", "--init", "he,xavier,he")
        serial = self.train(1, folder, *sigmoid)
        self.assertGreater(serial[1][0], 4)  # ten classes, each near log 2
        for ranks, *words in ((2, "--comm", "sharded"), (2, "--mesh", "tensor=2"),
                              (4, "--mesh", "pipe=2,tensor=2", "--tensor-split", "columns",
                               "--microbatches", 2), (3, "--comm", "ps")):
            with self.subTest(ranks=ranks, words=words):
                for mine, theirs in zip(self.train(ranks, folder, *sigmoid, *words)[1], serial[1]):
                    self.assertAlmostEqual(mine / theirs, 1, delta=1e-5)
        softmax = self.train(1, folder, *sigmoid, "--output", "softmax")
        self.assertLess(softmax[1][0], 4)
        done = gwrun.run(2, "eval", "--data", folder, "--model", self.path("run1"))
        loss = serial[0]["results"]["test_loss"]
        self.assertIn(f"accuracy {serial[3]:.4f}, loss {loss:.4f}", done.stdout)

    def test_init(self):
        folder = self.folder(LIMIT, TESTED)
        he, xavier, mixed, auto, both = (
            self.train(1, folder, "--init", name)[1]
            for name in ("he", "xavier", "he,xavier", "auto", "xavier,xavier"))
        self.assertEqual((auto, both), (he, xavier))
        self.assertNotIn(mixed, (he, xavier))
        mesh = self.train(2, folder, "--init", "he,xavier", "--mesh", "tensor=2")[1]
        for mine, theirs in zip(mesh, mixed):
            self.assertAlmostEqual(mine / theirs, 1, delta=1e-5)
