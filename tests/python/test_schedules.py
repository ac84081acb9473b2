"""Schedules as files: those that come with gradwire, those that schedules/make writes and those that
schedules/msccl2rounds converts run and give the sum; damaged ones are refused by one line."""

import json
import os

import gwrun

FOLDER = os.path.join(gwrun.SOURCE, "schedules")
SHIPPED = {"ring-4": ("ring", "4"), "halving-4": ("halving", "4"), "two-level-2x2": ("two-level", "2x2")}
TRAIN = ("train", "--data", "synthetic:samples=64,features=4,classes=2", "--layers", 4, "--batch", 16)


def make(*words):
    return gwrun.said(os.path.join(FOLDER, "make"), *words)


# ---- MSCCL's XML: {gpu: [(send, recv, chan, [step, ..]), ..]}, a step is (type, src, dst[, (depid, deps)]) with places
# such as "i3" ----

def xml(tbs, chunks, inplace=1, coll="allreduce"):
    text = f'<algo name="a" nchunksperloop="{chunks}" ngpus="{len(tbs)}" coll="{coll}" inplace="{inplace}">'
    for gpu, blocks in tbs.items():
        text += f'<gpu id="{gpu}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{len(tbs)}">'
        for i, (send, recv, chan, steps) in enumerate(blocks):
            text += f'<tb id="{i}" send="{send}" recv="{recv}" chan="{chan}">'
            for s, (kind, src, dst, *depends) in enumerate(steps):
                dep, at = depends[0] if depends else (-1, -1)
                text += (f'<step s="{s}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" '
                         f'dstoff="{dst[1:]}" cnt="{int(kind != "nop")}" depid="{dep}" deps="{at}" hasdep="0"/>')
            text += "</tb>"
        text += "</gpu>"
    return text + "</algo>"


def ring(ranks, channels=1):
    """One thread block a channel, steps fused as the compiler does: the sum of chunk r + 1 comes together on gpu r."""
    def steps(gpu, channel):
        def at(hop):
            chunk = f"i{(gpu - hop) % ranks * channels + channel}"
            return chunk, chunk
        kinds = ["s"] + ["rrs"] * (ranks - 2) + ["rrcs"] + ["rcs"] * (ranks - 2) + ["r"]
        return [(kind, *at(hop)) for hop, kind in enumerate(kinds)]
    return xml({gpu: [((gpu + 1) % ranks, (gpu - 1) % ranks, c, steps(gpu, c)) for c in range(channels)]
                for gpu in range(ranks)}, ranks * channels)


def all_pairs(ranks, inplace):
    """Into scratch, summed there by a thread block that depends on all others, and out of place, if asked to."""
    out = "i" if inplace else "o"
    tbs = {}
    for gpu in range(ranks):
        peers = [p for p in range(ranks) if p != gpu]
        tbs[gpu] = [(p, p, 0, [("s", f"i{p}", f"s{gpu}"), ("r", f"i{gpu}", f"s{p}")]) for p in peers]
        first = tbs[gpu][0][3]
        first += [("nop", "i0", "i0", (i, 1)) for i in range(1, len(peers))]
        first += [("re", f"s{p}", f"i{gpu}") for p in peers]
        if not inplace:
            first.append(("cpy", f"i{gpu}", f"o{gpu}"))
        summed = len(first) - 1
        for i, p in enumerate(peers):
            tbs[gpu][i][3].extend([("s", f"{out}{gpu}", f"{out}{gpu}", (0, summed) if i else (-1, -1)),
                                   ("r", f"{out}{p}", f"{out}{p}")])
    return xml(tbs, ranks, inplace)


class Schedules(gwrun.Case):

    def convert(self, name, text):
        return gwrun.finished([os.path.join(FOLDER, "msccl2rounds"), self.write(name, text)])

    def test_shipped(self):
        for name, words in SHIPPED.items():
            self.assertEqual(gwrun.read(FOLDER, f"{name}.json"), make(*words))
        self.assertEqual({f"{name}.json" for name in SHIPPED}, {n for n in os.listdir(FOLDER) if n.endswith(".json")})

    def sums(self, ranks, texts):
        """Every element that the program's own check knows is right, with every kind of codec."""
        paths = [self.write(f"{i}.json", text) for i, text in enumerate(texts)]
        algos = ",".join(f"(file:path={path})" for path in paths)
        document = self.path("out.json")
        gwrun.ok(ranks, "bench", "allreduce", "--sizes", "12,4004", "--algos", algos, "--compress", "none,qsgd,topk",
                 "--repeats", 1, "--json", document)
        rows = [r for r in gwrun.read_json(document)["results"] if r["algorithm"] != "native"]
        self.assertEqual(len(rows), 2 * 3 * len(paths))
        self.assertEqual([r["wrong"] for r in rows if r["codec"] == "none"], [0] * 2 * len(paths))

    def test_sums(self):
        self.sums(2, [make("ring", "2"), make("halving", "2"), make("two-level", "2x1"),
                      gwrun.quiet(self.convert("a", ring(2))), gwrun.quiet(self.convert("b", all_pairs(2, 1)))])
        self.sums(3, [make("ring", "3"), make("two-level", "1x3"), gwrun.quiet(self.convert("a", ring(3))),
                      gwrun.quiet(self.convert("b", all_pairs(3, 0)))])
        self.sums(4, [gwrun.read(FOLDER, f"{name}.json") for name in SHIPPED] +
                  [gwrun.quiet(self.convert("a", ring(4, 2))), gwrun.quiet(self.convert("b", all_pairs(4, 0)))])

    def test_rounds(self):
        """As few as the algorithm has, with all that can go at the same time side by side."""
        for text, rounds, transfers in ((ring(4), 6, 24), (ring(4, 2), 6, 24), (all_pairs(4, 1), 2, 24),
                                        (all_pairs(3, 0), 2, 12)):
            got = json.loads(gwrun.quiet(self.convert("x", text)))["rounds"]
            self.assertEqual((len(got), sum(map(len, got))), (rounds, transfers))

    def test_blocks_together(self):
        """Two chunks of one step are one transfer."""
        text = xml({0: [(1, 1, 0, [("s", "i0", "i0"), ("r", "i0", "i0")])],
                    1: [(0, 0, 0, [("rrc", "i0", "i0"), ("s", "i0", "i0")])]}, 2).replace('cnt="1"', 'cnt="2"')
        one = {"block": 0, "count": 2}
        self.assertEqual(json.loads(gwrun.quiet(self.convert("x", text)))["rounds"],
                         [[{"from": 0, "to": 1, "op": "add", **one}], [{"from": 1, "to": 0, "op": "set", **one}]])

    def test_not_converted(self):
        def pair(first, second):
            return xml({0: [(1, 1, 0, first)], 1: [(0, 0, 0, second)]}, 1)
        s, r, rrc = (("s", "i0", "i0"), ("r", "i0", "i0"), ("rrc", "i0", "i0"))
        for text, says in (
                ("<algo", "unclosed token"), (xml({0: [], 1: []}, 1, coll="allgather"), 'coll="allgather"'),
                (ring(2).replace('ngpus="2"', 'ngpus="3"'), "the <gpu>s are not 0 to 2"),
                (ring(2).replace('"rrcs"', '"put"'), "gpu 0, tb 0, step 1 (put): a step of an unknown type"),
                (ring(2).replace('srcoff="1"', 'srcoff="x"'), 'srcoff="x" is no whole number'),
                (pair([r], [r]), "gpu 0, tb 0, step 0 (r): waits for ever"),
                (pair([("s", "s0", "i0")], [r]), "chunk 0 of buffer s is read before anything is in it"),
                (pair([s, rrc], [s, rrc]), "counts twice, or is lost"),  # both sum: each in its own order
                (pair([s, ("r", "i0", "s0")], [rrc, s]), "gpu 0 does not end with the whole sum of chunk 0 in its place"),
                (xml({0: [(1, -1, 0, [s])], 1: [(2, 0, 0, [("r", "i0", "s0"), ("s", "s0", "s0")])],
                      2: [(-1, 1, 0, [("r", "s0", "s0")])]}, 1), "passes on a part of the sum of chunk 0, of gpu 0"),
                (pair([s], [("rrc", "i0", "s0")]), "adds to another chunk than it reads")):
            with self.subTest(says=says):
                gwrun.refusal(self.convert("x.xml", text), "msccl2rounds: ", "x.xml: ", says)

    def test_damaged(self):
        """One line, whatever the number of ranks: also on one, which exchanges nothing."""
        right = json.loads(make("ring", "2"))
        def without(key):
            return {k: v for k, v in right.items() if k != key}
        one = right["rounds"][0]
        for ranks, document, says in (
                (0, "{", "not JSON"), (1, without("ranks"), "ranks is missing"), (2, without("rounds"), "rounds must be"),
                (2, {**right, "gradwire_schedule": 2}, "gradwire_schedule is 2"),
                (1, {**right, "ranks": 1}, "ranks is 1: must be from 2"),
                (2, {**right, "rounds": right["rounds"][:1]}, "rank 1 never gets the whole sum of block 0"),
                (2, {**right, "rounds": right["rounds"][1:]}, "round 0, transfer 0: rank 0 has not the whole sum"),
                (2, {**right, "rounds": [one, *right["rounds"]]}, "round 1, transfer 0: rank 0 gave its sum"),
                (2, {**right, "rounds": [one + one]}, "round 0, transfer 2: rank 0 gave its sum of block 1 away"),
                (2, {**right, "rounds": [[{**one[0], "to": 5}]]}, "round 0, transfer 0: to is 5: must be from 0 to 1"),
                (1, {**right, "rounds": [[{**one[0], "block": 2}]]}, "block is 2: must be from 0 to 1"),
                (0, {**right, "rounds": [[{**one[0], "op": "max"}]]}, 'op must be "add" or "set"'),
                (2, {**right, "rounds": [[{**one[0], "to": 0}]]}, "rank 0 sends block 1 to itself")):
            with self.subTest(says=says):
                path = self.write("x.json", document if isinstance(document, str) else json.dumps(document))
                gwrun.refusal(gwrun.run(ranks, *TRAIN, "--comm", f"allreduce:algo=file:path={path}"),
                              "schedule ", "x.json: ", says)
        path = self.write("x.json", make("ring", "3"))
        gwrun.refusal(gwrun.run(2, *TRAIN, "--comm", f"iallreduce:algo=file:path={path}"),
                      "x.json is for 3 ranks, and 2 exchange here")
        gwrun.refusal(gwrun.run(2, *TRAIN, "--comm", "allreduce:algo=file"), "no schedule is named")
        gwrun.refusal(gwrun.run(1, *TRAIN, "--comm", "allreduce:algo=file:path=/nonesuch"), "cannot read /nonesuch")

    def test_trains(self):
        """To the bits of the algorithm that it writes down, also overlapped, and below the leaders of nodes."""
        path = self.write("2.json", make("ring", "2"))
        def trained(comm, *words):
            out = self.new()
            return gwrun.train(2, out, *TRAIN[1:], "--epochs", 2, "--comm", comm, *words)["results"]["replica_hash"]
        for codec in ("none", "qsgd"):
            self.assertEqual(trained(f"allreduce:algo=file:path={path}", "--compress", codec),
                             trained("allreduce:algo=ring:chunk=0", "--compress", codec))
        self.assertEqual(trained(f"iallreduce:bucket=1K,algo=(hier:group=1,inner=(file:path={path}))"),
                         trained("iallreduce:bucket=1K,algo=(hier:group=1,inner=(ring:chunk=0))"))

