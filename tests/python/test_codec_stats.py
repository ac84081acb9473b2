"""What compression does to gradients, as the program states it: --compress-stats, mixes of codecs,
the residual's watch."""

import os

import gwrun

BASE = ("--data", "synthetic:samples=4096,features=64,classes=10", "--layers", "48,32", "--batch", 64,
        "--epochs", 2, "--compress-stats", 7)


def rows(out):
    return gwrun.rows(out, "codec.csv")


class CodecStats(gwrun.Case):
    def train(self, ranks, *words):
        return gwrun.train(ranks, self.out, *BASE, *words)

    def test_exact_exchange_has_no_error(self):
        run = self.train(2, "--comm", "sharded")
        self.assertEqual(len(rows(self.out)), 2 * 3)
        last = [int(row["samples"]) for row in rows(self.out) if row["layer"] == "2"]
        self.assertEqual(sum(last), run["results"]["steps"] // 7)
        for row in rows(self.out):
            self.assertLess(float(row["relative_error"]), 1e-6)
            self.assertAlmostEqual(float(row["cosine"]), 1, 5)
            self.assertEqual(row["residual_norm"] + row["bits_per_element"], "")
        self.assertEqual([layer["layer"] for layer in run["comm"]["layers"]], [0, 1, 2])

    def test_gradient_norm_is_that_of_one_copy(self):
        self.train(2, "--comm", "sharded")
        parts = [float(row["gradient_norm"]) for row in rows(self.out)]
        self.out += "2"
        self.train(2, "--comm", "allreduce")
        for part, whole in zip(parts, rows(self.out)):
            self.assertAlmostEqual(part / float(whole["gradient_norm"]), 1, 4)

    def test_a_mix_is_seen_layer_by_layer(self):
        for ranks, comm in ((2, "allreduce"), (3, "iallreduce:bucket=4K")):
            with self.subTest(ranks=ranks):
                self.train(ranks, "--comm", comm, "--error-feedback", "on", "--overwrite",
                           "--compress", "qsgd:bits=4;layer1=none;layer2=(topk:ratio=0.05)")
                first, exact, sparse = rows(self.out)[3:]
                self.assertEqual([r["codec"] for r in (first, exact, sparse)],
                                 ["qsgd:bits=4", "none", "topk:ratio=0.05"])
                self.assertLess(float(exact["relative_error"]), 1e-6)
                self.assertTrue(0.05 < float(first["relative_error"]) < 0.5)
                self.assertGreater(float(sparse["relative_error"]), float(first["relative_error"]))
                self.assertLess(float(sparse["cosine"]), float(first["cosine"]))
                self.assertTrue(4 < float(first["bits_per_element"]) < 4.4)
                self.assertLess(float(sparse["bits_per_element"]), 3)
                self.assertGreater(float(first["residual_norm"]), 0)

    def test_refused_run_leaves_the_old_one(self):
        self.train(2)
        before = sorted(os.listdir(self.out))
        done = gwrun.run(2, "train", *BASE, "--comm", "local", "--out", self.out, "--overwrite")
        self.assertEqual((done.returncode, sorted(os.listdir(self.out))), (2, before))

    def test_small_tensors_go_exact(self):
        """The codec's bytes fall by what the exact tensors no longer take."""
        all_in = self.train(2, "--compress", "qsgd")["results"]["wire_bytes"]
        biases = self.train(2, "--compress", "qsgd;min_bytes=1K", "--overwrite")
        steps, floats = biases["results"]["steps"], 48 + 32 + 10
        gain = biases["results"]["wire_bytes"] - all_in
        self.assertLess(abs(gain / steps - 2 * floats * 3), 100)

    def test_ef21_codes_changes(self):
        """They are compared with what came of them, not with what they add up to."""
        self.train(2, "--compress", "topk:ratio=1", "--comm", "allreduce:algo=gathersum", "--error-feedback", "ef21")
        for row in gwrun.rows(self.out, "codec.csv"):
            self.assertLess(float(row["relative_error"]), 1e-5)

    def test_residual_that_grows_is_named(self):
        """Elements wait 1/ratio steps for their turn; at a large rate that no longer converges."""
        data = ("--data", "synthetic:samples=8192,features=64,classes=10", "--layers", "48,32",
                "--batch", 32, "--epochs", 5, "--compress", "randomk:ratio=0.01")
        for rate, grows in ((0.05, False), (0.3, True)):
            with self.subTest(rate=rate):
                run = gwrun.train(2, self.out, *data, "--lr", rate, "--overwrite")
                if grows:
                    self.assertRegex(run["comm"]["warning"], r"layer \d: the residual's norm grew")
                else:
                    self.assertIsNone(run["comm"]["warning"])

    def test_refusals_are_one_line(self):
        for ranks in (0, 3):
            for words, why in (
                    (("--comm", "gossip", "--compress-stats", 5), "does not update by it"),
                    (("--comm", "demo", "--compress-stats", 5), "does not update by it"),
                    (("--compress", "qsgd;layer7=none"), "layers are 0 to 2"),
                    (("--compress", "qsgd;layer=none"), "layerN=CODEC"),
                    (("--compress", "qsgd;layer1=none;layer1=fp16"), "two rules for layer 1"),
                    (("--compress", "qsgd;*.bias=none"), "tensors have no names"),
                    (("--compress", "qsgd;min_byte=4K"), "min_bytes"),
                    (("--compress", "qsgd;layer0=qsdg"), "did you mean 'qsgd'"),
                    (("--comm", "sharded", "--compress", "qsgd;layer0=none"), "use one codec"),
                    (("--error-feedback", "dgc", "--momentum", 0.9), "holds nothing back"),
                    (("--error-feedback", "dgc", "--compress", "topk"), "is about momentum"),
                    (("--comm", "local", "--compress", "topk", "--momentum", 0.9,
                      "--error-feedback", "momentum"), "does not exchange those"),
                    (("--comm", "powersgd", "--error-feedback", "off"), "its own residual"),
                    (("--comm", "allreduce:algo=auto", "--compress", "qsgd;min_bytes=1K"),
                     "this is a mix"),
                    (("--compress", "qsgd;"), "an empty item")):
                with self.subTest(ranks=ranks, words=words):
                    gwrun.refusal(gwrun.run(ranks, "train", *BASE, *words), why)
