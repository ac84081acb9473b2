"""gradwire bench: its figures fit together, a wrong result is found, a mistake costs one line."""

import math
import os
import statistics
import unittest

import gwrun

SOURCE, BUILD = os.environ["SOURCE"], os.environ["BUILD"]

# A sum that is right but for one element a rank, and one that forgets the other ranks.
OFF_BY_ONE = """
#include "comm/algo.h"
static gw_err spoil(void *s) {
    gw_span span = gw_schedule_span(s);
    gw_schedule_base(s)[span.off + span.n - 1] += 1;
    return GW_OK;
}
static gw_err lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)what, (void)root;
    GW_TRY(gw_kit_reduce_scatter(s));
    GW_TRY(gw_schedule_stage(s));
    GW_TRY(gw_kit_allgather(s));
    GW_TRY(gw_schedule_stage(s));
    return gw_schedule_work(s, spoil, s);
}
"""
NOTHING = """
#include "comm/algo.h"
static gw_err lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)s, (void)what, (void)root;
    return GW_OK;
}
"""
REST = """
static gw_cost cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)lane, (void)what, (void)n;
    return (gw_cost){0, 0};
}
extern const gw_algo_ops gw_algo_plugin;
const gw_algo_ops gw_algo_plugin = {
    .head = {GW_ALGO_ABI, "broken", "for the test of tests", NULL},
    .formula = "none",
    .lay_down = lay_down,
    .cost = cost,
};
"""


def bus_factor(verb, ranks):
    return {"allreduce": 2 * (ranks - 1) / ranks, "reduce-scatter": (ranks - 1) / ranks,
            "allgather": (ranks - 1) / ranks, "reduce": ranks > 1, "bcast": ranks > 1}[verb]


def spec(row):
    """Its codec, whether it encoded anything or not."""
    return row["codec"].removesuffix(" (not encoded here)")


def interval(samples):
    """95% interval of the median from order statistics; None: too few."""
    n, below, k = len(samples), 0.0, 0
    while below + math.comb(n, k) / 2 ** n <= 0.025:
        below += math.comb(n, k) / 2 ** n
        k += 1
    samples = sorted(samples)
    return (samples[k - 1], samples[n - k]) if k else None


class Bench(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.json = self.path("out.json")

    def bench(self, ranks, name, *words):
        """(document, printed lines) of a run that succeeds."""
        done = gwrun.ok(ranks, "bench", name, "--json", self.json, *words)
        document = gwrun.read_json(self.json)
        self.assertEqual((document["schema"], document["benchmark"]), (1, name))
        self.assertEqual((document["ranks"], document["nodes"]), (ranks, 1))
        self.assertEqual("nothing is sent" in done.stdout, ranks == 1)
        self.assertEqual("oversubscribed" in done.stdout, document["oversubscribed"])
        return document, done.stdout.splitlines()

    def close(self, a, b):
        self.assertLessEqual(abs(a - b), 1e-9 * max(abs(a), abs(b)), (a, b))

    def check_columns(self, document, lines, first, columns):
        """Each row is printed, in so many words or one more, a mark; names do not shift its columns."""
        words = [line.split() for line in lines]
        rows = [[name.replace(" ", "_") for name in first(row)] for row in document["results"]]
        printed = [line for line in words if line[:len(rows[0])] in rows]
        self.assertEqual([line[:len(rows[0])] for line in printed], rows)
        self.assertLessEqual({len(line) for line in printed}, {columns, columns + 1})

    # ---- allreduce ----

    def check_cells(self, document, lines, verb):
        native = {}
        for row in document["results"]:
            self.assertEqual(row["verb"], verb)
            self.assertEqual(row["wrong"], 0, row)
            self.assertTrue(0 < row["min_s"] <= row["median_s"] <= row["p95_s"], row)
            self.close(row["algbw"], row["bytes"] / row["median_s"] / 1e9)
            self.close(row["busbw"], row["algbw"] * bus_factor(verb, document["ranks"]))
            if row["algorithm"] == "native" and row["codec"] == "none":
                native[row["bytes"]] = row["median_s"]
            if row["ci_low_s"] is None:
                self.assertLess(row["repeats"], 6)
            else:
                self.assertTrue(row["min_s"] <= row["ci_low_s"] <= row["median_s"] <= row["ci_high_s"], row)
            self.assertEqual(row["bound"] == 0, row["codec"] == "none")
        for row in document["results"]:
            self.close(row["ratio_native"], native[row["bytes"]] / row["median_s"])
        self.check_columns(document, lines, lambda r: (str(r["bytes"]), r["algorithm"], r["codec"]), 12)
        idle = {(r["algorithm"], r["codec"]) for r in document["not_encoded"]}
        for row in document["results"]:
            encodes = row["codec"] == spec(row)
            self.assertEqual(encodes, (row["algorithm"], spec(row)) not in idle, row)
            self.assertEqual(encodes, spec(row) == "none" or document["ranks"] > 1 and row["algorithm"] != "hier", row)
        for row in document["not_encoded"]:
            self.assertIn(f"not encoded here: {row['codec']} over {row['algorithm']}: {row['reason']}", lines)

    def test_allreduce(self):
        for ranks, mode, repeats in ((1, "--blocking", 6), (2, "--blocking", 6),
                                     (2, "--nonblocking", 6), (3, "--nonblocking", 2)):
            with self.subTest(ranks=ranks, mode=mode):
                document, lines = self.bench(
                    ranks, "allreduce", "--sizes", "4,1000,16K..32K", "--repeats", repeats,
                    "--compress", "none,fp16,(qsgd:bits=4,bucket=128)", mode)
                self.check_cells(document, lines, "allreduce")
                rows = document["results"]
                self.assertEqual({r["bytes"] for r in rows}, {4, 1000, 16384, 32768})
                self.assertEqual({spec(r) for r in rows},
                                 {"none", "fp16", "qsgd:bits=4,bucket=128"})
                self.assertTrue(all(r["repeats"] == repeats and not r["limited"] for r in rows))
                # Every algorithm there is: measured with a codec, or refused with the reason.
                for algorithm in gwrun.names("comm/algos.def"):
                    for codec in ("none", "fp16", "qsgd:bits=4,bucket=128"):
                        name = {(algorithm, codec)}
                        if algorithm == "native":
                            name.add(("native/poll", codec))
                        ran = {(r["algorithm"], spec(r)) for r in rows}
                        refused = {(r["algorithm"], r["codec"]) for r in document["refused"]}
                        self.assertTrue(name & (ran | refused), name)
                for row in document["refused"]:
                    self.assertTrue(any(line.startswith("refused:") and row["reason"] in line
                                        for line in lines))

    def test_a_codec_that_cannot_run(self):
        """The others do: thc's levels would overflow where MPI adds them, and fit where each is decoded."""
        codecs = "none;thc:granularity=200;fp16"
        for name, words in (("allreduce", ("--repeats", 2)), ("overlap", ("--repeats", 1, "--progress", "poll"))):
            with self.subTest(name=name):
                document, lines = self.bench(2, name, "--sizes", "4K", "--algos", "native,sra", "--compress", codecs, *words)
                refused = document["refused"]
                self.assertEqual([(r["algorithm"], r["codec"]) for r in refused], [("native", "thc:granularity=200")])
                self.assertIn("could overflow", refused[0]["reason"])
                self.assertIn(f"refused: {refused[0]['reason']}", lines)
                bytes_of = {(r["algorithm"], r["codec"]): r["wire_bytes"] for r in document["results"]}
                self.assertEqual(bytes_of["sra", "none"], 4096)
                self.assertEqual(bytes_of["sra", "fp16"], 2048)
                self.assertLess(bytes_of["sra", "thc:granularity=200"], 1200)
                self.assertIn(("native", "fp16"), bytes_of)
        document, lines = self.bench(2, "step", "--steps", 2, "--warmup", 1, "--layers", "16", "--bound", "off", "--configs",
                                     "allreduce|thc:granularity=200;ps;allreduce:algo=native|qsgd")
        self.assertEqual([r["comm"] for r in document["results"]], ["ps"])
        for r in document["refused"]:
            self.assertIn(f"refused: {r['comm']} with {r['compress']}: {r['reason']}", lines)
        self.assertEqual([r["compress"] for r in document["refused"]], ["thc:granularity=200", "qsgd"])

    def test_integers_over_many_ranks(self):
        """Codes that MPI adds get coarser with every rank; the bound is of the codec as it then is."""
        self.bench(8, "allreduce", "--sizes", "64K", "--repeats", 2, "--algos", "native,ring", "--compress", "int8sum")

    def test_verbs(self):
        for verb in ("reduce", "bcast", "reduce-scatter", "allgather"):
            with self.subTest(verb=verb):
                document, lines = self.bench(3, "allreduce", "--verb", verb, "--sizes", "4,40K",
                                             "--repeats", 2)
                self.check_cells(document, lines, verb)

    def test_repeats_by_precision(self):
        document, _ = self.bench(2, "allreduce", "--sizes", "4K", "--algos", "sra",
                                 "--precision", 100, "--time-limit", 600)
        for row in document["results"]:
            half = (row["ci_high_s"] - row["ci_low_s"]) / 2
            self.assertFalse(row["limited"])
            self.assertGreaterEqual(row["repeats"], 12)
            self.assertLessEqual(half, 1.0 * row["median_s"])
        # No time for more than there must be, and a precision that no run reaches.
        document, lines = self.bench(2, "allreduce", "--sizes", "1M", "--algos", "sra",
                                     "--precision", 0.1, "--time-limit", 0.001)
        for row in document["results"]:
            half = (row["ci_high_s"] - row["ci_low_s"]) / 2
            self.assertGreaterEqual(row["repeats"], 6)
            self.assertEqual(row["limited"], half > 0.001 * row["median_s"])
        self.assertEqual(any("time limit" in line for line in lines),
                         any(row["limited"] for row in document["results"]))

    def test_verify_off(self):
        document, _ = self.bench(2, "allreduce", "--sizes", "4K", "--repeats", 1,
                                 "--verify", "off")
        self.assertTrue(all(row["wrong"] is None for row in document["results"]))

    # ---- wrong results ----

    def plugin(self, text):
        return gwrun.plugin(self.path(f"broken{len(os.listdir(self.dir))}"), text + REST)

    def test_wrong_is_found(self):
        repeats = 3
        exchanges = 1 + 2 * repeats  # a warm-up, then one untimed before each
        for text, codec, per_rank in ((OFF_BY_ONE, "none", 1), (NOTHING, "none", 1000),
                                      (NOTHING, "fp16", 900)):
            path = self.plugin(text)
            with self.subTest(codec=codec, per_rank=per_rank):
                done = gwrun.run(2, "bench", "allreduce", "--sizes", 4000, "--algos",
                                 f"{path},sra", "--compress", codec, "--repeats", repeats,
                                 "--json", self.json)
                self.assertIn("wrong elements", gwrun.failure(done))
                wrong = {r["algorithm"]: r["wrong"] for r in gwrun.read_json(self.json)["results"]}
                self.assertEqual(wrong["sra"], 0)
                self.assertEqual(wrong["native"], 0)
                if codec == "none":
                    self.assertEqual(wrong[path], 2 * exchanges * per_rank)
                else:
                    # What a lossy codec may change hides the smallest of what was left out.
                    self.assertGreater(wrong[path], 2 * exchanges * per_rank)
        path = self.plugin(NOTHING)
        done = gwrun.run(2, "bench", "overlap", "--sizes", 4000, "--algos", path, "--progress",
                         "none", "--repeats", 1)
        self.assertIn("wrong elements", gwrun.failure(done))

    # ---- overlap ----

    def test_overlap(self):
        for ranks, sizes, codecs in ((1, "4K,64K", "none,fp16"), (2, "4K,64K", "none,fp16"),
                                     (3, "4K", "none")):
            with self.subTest(ranks=ranks):
                document, lines = self.bench(ranks, "overlap", "--sizes", sizes, "--repeats", 6,
                                             "--compress", codecs, "--compute-ratio", 1)
                rows = document["results"]
                ways = 2 * 3  # algorithms by default, and progress modes
                self.assertEqual(len(rows), ways * len(sizes.split(",")) * len(codecs.split(",")))
                self.check_columns(document, lines, lambda r: (str(r["bytes"]), r["algorithm"], r["codec"], r["progress"]), 15)
                for row in rows:
                    self.check_overlap(row, ranks)

    def check_overlap(self, row, ranks):
        self.assertEqual(row["wrong"], 0)
        self.assertGreaterEqual(row["kernels"], 1)
        comm, comp = row["comm_rounds_s"], row["comp_rounds_s"]
        both = row["both_rounds_s"]
        self.assertEqual([len(comm), len(comp), len(both)], [6, 6, 6])
        for name in ("comm", "comp", "both", "exposed", "post", "poll", "saved", "interference"):
            rounds = row[f"{name}_rounds_s"]
            self.close(row[f"{name}_s"], statistics.median(rounds))
            low, high = interval(rounds)
            self.close(row[f"{name}_ci_low_s"], low)
            self.close(row[f"{name}_ci_high_s"], high)
        for c, p, b, saved in zip(comm, comp, both, row["saved_rounds_s"]):
            self.assertLess(0, min(c, p, b))
            self.assertLess(abs(saved - (c + p - b)), 1e-9)
        if ranks == 1:
            self.assertIsNone(row["hidden"])
        else:
            for c, p, b, hidden in zip(comm, comp, both, row["hidden_rounds"]):
                self.assertLess(abs(hidden - (1 - (b - p) / c)), 1e-6 * max(1, abs(hidden)))
            self.close(row["hidden"], statistics.median(row["hidden_rounds"]))

    # ---- step ----

    def test_step(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                document, lines = self.bench(
                    ranks, "step", "--steps", 7, "--block", 3, "--warmup", 2, "--layers", "16",
                    "--inputs", 20, "--classes", 4, "--batch", 8, "--configs",
                    "allreduce;iallreduce:algo=sra,progress=thread|qsgd:bits=8|lazy;ps|fp16")
                rows = document["results"]
                idle = " (not encoded here)" * (ranks == 1)
                self.assertEqual([(r["comm"], r["compress"], r["update"]) for r in rows],
                                 [("allreduce", "none", "eager"),
                                  ("iallreduce:algo=sra,progress=thread", "qsgd:bits=8" + idle, "lazy"),
                                  ("ps", "fp16" + idle, "eager")])
                parameters = 20 * 16 + 16 + 16 * 4 + 4
                self.assertTrue(any(line.startswith(f"{parameters} parameters, global batch 8;")
                                    for line in lines))
                for row in rows:
                    self.assertEqual(row["steps"], 7)
                    self.assertTrue(0 < row["min_s"] <= row["median_s"] <= row["p95_s"], row)
                    self.close(row["ratio_first"], rows[0]["median_s"] / row["median_s"])
                    self.assertLess(0, row["computation_s"])
                    self.assertEqual(row["wire_bytes"] > 0, ranks > 1)
                self.assertEqual(rows[0]["inflight_s"], 0)  # blocking
                self.assertEqual(rows[0]["codec_s"], 0)     # nothing to encode
                if ranks > 1:
                    self.assertLess(0, rows[2]["codec_s"])

    # ---- mistakes ----

    def refused(self, says, *words, ranks=(0, 2)):
        for number in ranks:
            with self.subTest(ranks=number, words=words):
                gwrun.refusal(gwrun.run(number, "bench", *words), says)

    # ---- pipe ----

    def test_pipe(self):
        pace = 500, 300, 200
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                document, lines = self.bench(
                    ranks, "pipe", "--timetable", "gpipe;1f1b:eager=1;interleaved:chunks=3;zb",
                    "--microbatches", "1,3,4", "--pace", ",".join(map(str, pace)), "--steps", 6,
                    "--block", 3, "--width", 3000)
                rows = document["results"]
                cells = [(r["timetable"], r["microbatches"]) for r in rows]
                refused = {2: [1, 3], 3: [1, 4]}[ranks] # not a multiple of the stages
                self.assertEqual(cells, [(t, m) for t in ("gpipe", "1f1b:eager=1",
                                                          "interleaved:chunks=3", "zb")
                                         for m in (1, 3, 4)
                                         if t != "interleaved:chunks=3" or m not in refused])
                self.assertEqual(len(document["left_out"]), len(refused))
                for why in document["left_out"]:
                    self.assertIn(f"not measured: {why}", lines)
                self.assertEqual(document["hop_bytes"], 3000 * 32 * 4)
                for row in rows:
                    self.check_pipe_row(row, ranks, pace, document["hop_s"])

    def check_pipe_row(self, row, ranks, pace, hop_s):
        forward, inputs, weights = (us * 1e-6 for us in pace)
        micros, idle = row["microbatches"], row["formula_idle_s"]
        self.close(row["work_s"], micros * sum(pace) * 1e-6)
        self.assertLessEqual(row["ci_low_s"], row["median_s"])
        self.assertLessEqual(row["median_s"], row["ci_high_s"])
        for step, wait in (("median_s", "idle_s"), ("simulated_s", "simulated_idle_s")):
            self.assertAlmostEqual(row[step], row["work_s"] + row[wait], places=12)
            self.assertGreaterEqual(row[wait], -1e-6) # nobody is quicker than the pace
        self.close(row["ratio_simulated"], row["median_s"] / row["simulated_s"])
        if micros < ranks:
            self.assertIsNone(idle)
            return
        self.close(row["ratio_formula"], row["median_s"] / row["formula_s"])
        self.assertAlmostEqual(row["formula_s"], row["work_s"] + idle, places=12)
        share = {"interleaved:chunks=3": sum((forward, inputs, weights)) / 3,
                 "zb": inputs + max(0, forward - weights)}
        self.assertAlmostEqual(idle, (ranks - 1) * share.get(row["timetable"], 1e-3), places=12)
        if hop_s == 0:
            self.assertAlmostEqual(row["simulated_s"], row["formula_s"], places=6)
        self.assertGreaterEqual(row["simulated_s"], row["formula_s"] - 1e-7) # it counts whole ns

    def test_layers(self):
        """Every model by layers: the parts make up the step, and their profile can be played."""
        profile = self.path("profile.json")
        for words, layers in ((("--layers", "20,10"), 3), (("--model", "cnn:preset=resnet", "--batch", "8"), 5),
                              (("--model", "gpt:layers=2,width=32,heads=2,context=16", "--optimizer", "adamw"), 6)):
            with self.subTest(words=words):
                document, _ = self.bench(1, "layers", *words, "--steps", "3", "--profile", profile)
                rows, told = document["results"], gwrun.read_json(profile)
                self.assertEqual(len(rows), layers)
                parts = sum(row["forward_s"] + row["backward_s"] for row in rows)
                for row in rows:
                    self.close(row["share"] * document["step_s"], row["forward_s"] + row["backward_s"])
                    if row["parameters"]:
                        moved = 12 + 8 * 2 * ("adamw" in words)  # bytes of a parameter
                        self.close(row["update_gb_per_s"] * row["update_s"], 1e-9 * moved * row["parameters"])
                tensors = told["tensors"]
                self.assertEqual([row["tensors"] for row in rows],
                                 [sum(t["group"] == group for t in tensors) for group in range(layers)])
                self.assertEqual([row["parameters"] for row in rows],
                                 [sum(math.prod(t["shape"]) for t in tensors if t["group"] == group)
                                  for group in range(layers)])
                self.close(sum(t["forward_s"] + t["backward_s"] for t in tensors), parts)
                self.assertEqual(told["optimizer_s"], document["update_s"])
                self.close(sum(row["update_s"] for row in rows), document["update_s"])
                if layers == 3:  # dense: forward and weights of all, inputs of all but the first; a batch of 64
                    for row, flops in zip(rows, (4 * 784 * 20, 6 * 20 * 10, 6 * 10 * 10)):
                        self.close(row["gflop_per_s"] * (row["forward_s"] + row["backward_s"]), 64e-9 * flops)
                self.assertTrue(all(t["std"] > 0 for t in tensors))
                gwrun.ok(2, "replay", profile, "--steps", "2", "--speed", "1000", "--out", self.out, "--overwrite")
        self.refused("unknown option", "layers", "--compress", "fp16")
        self.refused("--tensor-split needs --profile", "layers", "--tensor-split", "columns")
        self.refused("--tensor-split columns: it is of dense layers, and the model gpt has others", "layers", "--model", "gpt",
                     "--tensor-split", "columns", "--profile", profile)
        self.refused("layers runs on one rank", "layers", ranks=(2,))
        self.refused("no/such", "layers", "--profile", self.path("no/such/profile.json"), ranks=(0,))

    def test_mistakes(self):
        self.refused("which benchmark", "--sizes", "4K")
        self.refused("did you mean 'allreduce'", "alreduce")
        self.refused("unexpected word", "allreduce", "overlap")
        for name in ("allreduce", "overlap"):
            self.refused("sizes=4x", name, "--sizes", "4x")
            self.refused("multiple of 4", name, "--sizes", "6")
            self.refused("ends before", name, "--sizes", "1M..4K")
            self.refused("more than 64 sizes", name, "--sizes", ",".join(["4"] * 65))
            self.refused("did you mean 'sra'", name, "--algos", "native,sar")
            self.refused("balance", name, "--algos", "native,(sra")
            self.refused("empty item", name, "--algos", "native,,sra")
            self.refused("did you mean 'qsgd'", name, "--compress", "none,qsdg")
        self.refused("verb=scatter", "allreduce", "--verb", "scatter")
        self.refused("--blocking excludes --nonblocking", "allreduce", "--blocking", "--nonblocking")
        self.refused("repeats=0", "allreduce", "--repeats", "0")
        self.refused("precision", "allreduce", "--precision", "0")
        self.refused("verify", "allreduce", "--verify", "maybe")
        self.refused("progress=some", "overlap", "--progress", "some")
        self.refused("named twice", "overlap", "--progress", "poll,poll")
        self.refused("compute-ratio", "overlap", "--compute-ratio", "-1")
        self.refused("--configs excludes --comm", "step", "--comm", "ps", "--configs", "ps")
        self.refused("excludes --batch", "step", "--batch", "8", "--local-batch", "8")
        self.refused("number 2 has nothing in its field 2", "step", "--configs", "ps;ps|")
        self.refused("eager|lazy", "step", "--configs", "ps|none|later")
        self.refused("more than COMM", "step", "--configs", "ps|none|lazy|x")
        self.refused("cannot carry", "step", "--comm", "allreduce:algo=native",
                     "--compress", "qsgd")
        self.refused("no configuration can run", "step", "--configs", "allreduce:algo=native|qsgd;sparse|none")
        self.refused("layers", "step", "--layers", "4,,4")
        self.refused("two stages or more", "pipe", ranks=(0,))
        self.refused("give three times", "pipe", "--pace", "100,100")
        self.refused("pace=0", "pipe", "--pace", "0,1,1")
        self.refused("did you mean 'gpipe'", "pipe", "--timetable", "1f1b;gpip", ranks=(2,))
        for name in ("allreduce", "overlap", "step", "pipe"):
            self.refused("cannot write", name, "--json", "/no/such/folder/x.json")

    def test_help(self):
        for words in (("bench", "--help"), ("bench", "codec", "--help")):
            gwrun.ok(1, *words)
        listed = gwrun.run(1, "bench", "--help").stdout
        for name in ("allreduce", "overlap", "step", "codec", "overhead", "pipe"):
            self.assertIn(f"\n  {name} ", listed)
            text = gwrun.run(1, "bench", name, "--help").stdout
            self.assertIn("--json FILE", text)


class Page(unittest.TestCase):
    def test_names_every_figure(self):
        """docs/benchmarks.md tells of each key of a row and each column of a table."""
        page = gwrun.read(SOURCE, "docs", "benchmarks.md")
        for word in ("min", "median", "p95", "algbw", "busbw", "wrong", "x native", "reps", "+-%",
                     "limited", "bound", "ratio_native", "hidden", "saved", "interference",
                     "exposed", "post", "poll", "comm", "comp", "both", "kernels", "x first",
                     "ratio_first", "computation", "inflight", "wire_bytes", "x memcpy",
                     "bits/el", "relative_error", "enc GB/s", "d+a GB/s", "hop_s", "x sim",
                     "x formula", "sim idle", "work_s", "left_out"):
            self.assertIn(f"`{word}`", page)
