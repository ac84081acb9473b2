"""`gradwire simulate`: its figures and its JSON, what it refuses, its GOAL text, read by a LogGP reader of a few
lines, and its Chakra traces, read as Protocol Buffers."""

import heapq
import os
import re

import gwrun

LATENCY_NS, OVERHEAD_NS, NS_PER_BYTE = 20000, 2000, 1  # 8gbit,20us,2us
LINK = ("--link", "8gbit,20us,2us")


def parse(text):
    """[rank][label] -> (kind, amount, peer, tag), and the labels that it waits for."""
    ranks = []
    for line in text.splitlines():
        words = line.split()
        if words[0] == "rank":
            ranks.append({})
        elif words[0] != "}" and len(ranks) > 0:
            label = words[0].rstrip(":")
            if words[1] == "requires":
                ranks[-1][label][1].append(words[2])
            elif words[1] == "calc":
                ranks[-1][label] = (("calc", int(words[2]), None, None), [])
            else:
                ranks[-1][label] = ((words[1], int(words[2].rstrip("b")), int(words[4]), int(words[6])), [])
    return ranks


def fields(data):
    """[(field, value)] of a message of Protocol Buffers with varints and byte strings."""
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            at, byte = at + 1, data[at]
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    found, at = [], 0
    while at < len(data):
        key = varint()
        value = varint()
        if key & 7 == 2:
            at, value = at + value, data[at:at + value]
            assert at <= len(data)
        else:
            assert key & 7 == 0, key
        found.append((key >> 3, value))
    return found


def trace(data, rank):
    """{label: ((kind, amount, peer, tag), labels that it waits for)} of a Chakra trace, as parse() has a rank; a
    computation's amount in us."""
    parts, nodes = [], {}
    while data:  # each with its length before it, as a byte string without its key
        size = next(n for n in range(1, 6) if data[n - 1] < 128)
        length = fields(b"\0" + data[:size])[0][1]
        parts.append(fields(data[size:size + length]))
        data = data[size + length:]
    assert parts[0] == [(1, b"0.0.4")]
    for node in parts[1:]:
        of = {field: value for field, value in node if field not in (5, 10)}
        attr = {name: values for (_, name), *values in (fields(value) for field, value in node if field == 10)}
        kind = {4: "calc", 5: "send", 6: "recv"}[of[3]]
        op = kind, of.get(7), None, None
        assert attr.pop(b"is_cpu_op") == [(27, 0)] and of[2] == kind.encode()
        if kind != "calc":
            (own, me), (other, peer) = [attr[end][0] for end in (b"comm_src", b"comm_dst")][::1 if kind == "send" else -1]
            (at, tag), (wide, amount) = attr[b"comm_tag"][0], attr[b"comm_size"][0]
            assert (own, other, at, wide, me) == (7, 7, 7, 9, rank)  # int32 and int64, as readers ask for them
            op = kind, amount, peer, tag
        nodes[f"l{of[1]}"] = op, [f"l{value}" for field, value in node if field == 5]
    return nodes


def loggp(ranks):
    """When the last rank is through, in ns: o a message at each end, L and G on the way, one message after another of
    each sender's link, computations and overheads one after another on each rank's core."""
    waits = [{label: len(needs) for label, (_, needs) in rank.items()} for rank in ranks]
    after = [{} for _ in ranks]
    for r, rank in enumerate(ranks):
        for label, (_, needs) in rank.items():
            for need in needs:
                after[r].setdefault(need, []).append(label)
    core, link, arrived, posted, end = [0] * len(ranks), [0] * len(ranks), {}, {}, 0
    # Of one moment: what is posted or computed in the order of its label.
    ahead = [(0, int(label[1:]), r, label, False) for r, waiting in enumerate(waits)
             for label, n in waiting.items() if n == 0]
    heapq.heapify(ahead)

    def push(at, r, label, done):
        heapq.heappush(ahead, (at, int(label[1:]), r, label, done))

    while ahead:
        now, _, r, label, done = heapq.heappop(ahead)
        kind, amount, peer, tag = ranks[r][label][0]
        if done:
            end = max(end, now)
            for other in after[r].get(label, ()):
                waits[r][other] -= 1
                if waits[r][other] == 0:
                    push(now, r, other, False)
        elif kind == "calc":
            core[r] = max(core[r], now) + amount
            push(core[r], r, label, True)
        elif kind == "send":
            core[r] = max(core[r], now) + OVERHEAD_NS
            link[r] = max(link[r], core[r]) + amount * NS_PER_BYTE
            push(link[r], r, label, True)
            arrived[r, peer, tag] = link[r] + LATENCY_NS
            if (r, peer, tag) in posted:
                push(arrived[r, peer, tag], peer, posted[r, peer, tag], False)
        elif (peer, r, tag) not in arrived:
            posted[peer, r, tag] = label
        elif arrived[peer, r, tag] > now:
            push(arrived[peer, r, tag], r, label, False)
        else:
            core[r] = max(core[r], now) + OVERHEAD_NS
            push(core[r], r, label, True)
    assert all(n == 0 for waiting in waits for n in waiting.values())
    return end


class Simulate(gwrun.Case):
    def simulate(self, *words, ranks=8):
        done = gwrun.clean(0, "simulate", "--ranks", ranks, *LINK, "--json", self.path("f.json"), *words)
        return gwrun.read_json(self.path("f.json")), done.stdout

    def test_figures(self):
        """A ring's closed form, and that the JSON says what the program was asked."""
        run, said = self.simulate("--bytes", "800000", "--comm", "allreduce:algo=(ring:chunk=0)")
        each = 1e-9 * (LATENCY_NS + 2 * OVERHEAD_NS + 100000 * NS_PER_BYTE)
        self.assertAlmostEqual(run["step_s"], 14 * each, delta=1e-4 * run["step_s"])
        self.assertAlmostEqual(run["exposed_s"], run["step_s"], delta=1e-9)
        self.assertEqual((run["wire_bytes"], run["messages"]), (1400000, 14))
        self.assertEqual((run["network"]["ranks"], run["network"]["link"]["bytes_per_s"], run["step"]["compress"]),
                         (8, 1e9, "none"))
        self.assertIn("1400000 wire bytes and 14 messages a rank", said)
        again, _ = self.simulate("--bytes", "800000", "--comm", "allreduce:algo=(ring:chunk=0)")
        self.assertEqual([run[key] for key in ("step_s", "events")], [again[key] for key in ("step_s", "events")])

    def test_single_step(self):
        """It ends when all that it sent has arrived, also what the next step would wait for. Of several, none is
        longer than that."""
        for comm in ("sharded:algo=(ring:chunk=0)", "delayed:algo=(ring:chunk=0)", "iallreduce:algo=(ring:chunk=0),order=priority"):
            for update in ("eager", "lazy") if "delayed" not in comm else ("eager",):
                words = ("--bytes", "8000000", "--comm", comm, "--update", update)
                one, _ = self.simulate(*words, "--steps", 1, "--out", self.path("run"), "--overwrite")
                self.assertGreaterEqual(one["step_s"], one["wire_bytes"] * NS_PER_BYTE * 1e-9, (comm, update))
                results = gwrun.read_json(self.path("run", "run.json"))["results"]
                self.assertAlmostEqual(results["elapsed_s"], one["step_s"], delta=1e-9)
                self.assertGreaterEqual(one["step_s"] * (1 + 1e-6), self.simulate(*words)[0]["step_s"])

    def test_folded(self):
        """One rank stands for all where it can, and says so; MPI's own collectives are modelled, and say that."""
        for algo, played, modelled in (("ring", 1, None), ("native", 1, "native"), ("tree", 8, None),
                                       ("persistent", 1, "persistent")):
            words = ("--bytes", "800000", "--comm", f"allreduce:algo={algo}")
            run, said = self.simulate(*words)
            every, alone = self.simulate(*words, "--fold", "off")
            self.assertEqual((run["network"]["played"], every["network"]["played"]), (played, 8))
            self.assertEqual(("folded: 1 rank is played" in said, "folded:" in alone), (played == 1, False))
            self.assertAlmostEqual(run["step_s"], every["step_s"], delta=1e-3 * run["step_s"])
            self.assertEqual(run["step"]["modelled"], modelled)
            self.assertEqual("modelled as halving:chunk=0" in said, modelled is not None)

    def test_networks(self):
        """A network decides, and its text stands in the JSON."""
        times = []
        for network in "star", "fattree:racks=2,uplink=1gbit", "torus:dims=4x2,rate=1gbit", \
                "dragonfly:groups=2,routers=2,between=500mbit":
            run, said = self.simulate("--bytes", "800000", "--comm", "allreduce:algo=sra", "--network", network)
            self.assertEqual(run["network"]["network"], network)
            self.assertIn(network, said)
            times.append(run["step_s"])
        self.assertEqual(len(set(times)), 4)
        self.assertEqual(min(times), times[0])

    def test_profile(self):
        """Computing takes as long as the profile says, and overlap hides what it covers."""
        path = os.path.join(gwrun.SOURCE, "profiles", "resnet50.json")
        of = gwrun.read_json(path)
        computed_s = of["optimizer_s"] + sum(t["forward_s"] + t["backward_s"] for t in of["tensors"])
        exposed = []
        for comm in "allreduce:algo=halving", "iallreduce:algo=halving", "sharded:algo=halving":
            for update in "eager", "lazy":
                words = ("--profile", path, "--comm", comm, "--compress", "bf16", "--update", update, "--speed", "2")
                run, _ = self.simulate(*words, "--bucket-mb", "25", ranks=4)
                share = of["optimizer_s"] * (3 / 4 if comm.startswith("sharded") else 0)
                self.assertAlmostEqual(run["step_s"], (computed_s - share) / 2 + run["exposed_s"], delta=2e-4)
                exposed.append(run["exposed_s"])
        self.assertLess(max(exposed[2:4]), exposed[0] / 2)

    def test_ranks_that_differ(self):
        """A slow rank costs all of them its delay, less what it is held up itself, and draws are those of the seed."""
        def step(*words):
            run, said = self.simulate("--bytes", "4000", "--comm", "allreduce:algo=ring", "--steps", "5", *words)
            self.assertEqual(" --inject-skew " in said, "--inject-skew" in words)
            return run["step_s"], run["exposed_s"]

        alone, late = step(), step("--inject-skew", "3:5ms")
        self.assertLess(alone[0], 0.4e-3)  # which the others' messages may come to before the late ones
        self.assertTrue(5e-3 < late[0] <= alone[0] + 5e-3, late)
        self.assertTrue(5e-3 * 7 / 8 < late[1] <= alone[1] + 5e-3 * 7 / 8, late)
        drawn = [step("--inject-skew", "all:exp:mean=5ms", "--seed", seed) for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_folder(self):
        """A run's folder, by which the tools give the simulated step, and say of each figure that it is simulated; its
        draws are those of a real run, and an older run stays until the new one is over."""
        one, words = self.path("study/one"), ("--ranks", "4", *LINK, "--bytes", "4000", "--steps", "6")
        drawn = ("--inject-skew", "all:exp:mean=5ms", "--seed", "3")
        ring = ("--comm", "allreduce:algo=ring")
        gwrun.clean(0, "simulate", *words, *ring, *drawn, "--out", one, "--quiet", "--json", self.path("f.json"))
        run, said = gwrun.run_json(one), gwrun.read_json(self.path("f.json"))
        self.assertEqual((run["program"], run["simulated"]["step"]["inject_skew"], run["machine"]["ranks"]),
                         ("simulate", drawn[1], 4))
        self.assertEqual(run["simulated"]["network"].keys(), said["network"].keys())
        self.assertEqual((run["results"]["steps"], run["results"]["summary"]["batches"]), (6, 5))
        self.assertAlmostEqual(run["results"]["summary"]["exposed_s"], said["exposed_s"], delta=1e-8)
        self.assertAlmostEqual(run["results"]["summary"]["wall_s"], said["step_s"], delta=0.02 * said["step_s"])
        rows = gwrun.batches(one)
        self.assertEqual([(row["rank"], row["step"]) for row in rows],
                         [(str(rank), str(step)) for step in range(1, 7) for rank in range(4)])
        for row in rows:
            self.assertAlmostEqual(float(row["wall_s"]), float(row["data_s"]) + float(row["mpi_wait_s"]), delta=2e-9)
            self.assertEqual((row["wire_bytes"], row["messages"], row["encode_s"]), ("6000", "6", ""))
        real = self.path("real")
        gwrun.train(2, real, "--data", "synthetic:samples=96,features=8,classes=4", "--batch", "16", "--epochs", "1",
                    "--layers", "8", *drawn)
        met = [(row["rank"], row["step"], row["injected_s"]) for row in gwrun.batches(real)]
        self.assertGreater(len(met), 8)
        self.assertEqual(met, [(row["rank"], row["step"], row["injected_s"]) for row in rows
                               if row["rank"] in "01"][:len(met)])

        for tool, folder in (("show", one), ("table", one), ("report", self.path("study")), ("export", self.path("study"))):
            printed = gwrun.clean(0, tool, folder).stdout
            text = gwrun.read(os.path.join(folder, "report.html")) if tool == "report" else printed
            self.assertIn("simulated", text.lower(), tool)
            self.assertNotIn("steady mean of", text)
        before = gwrun.contents(one)
        gwrun.refusal(gwrun.run(0, "simulate", *words, *ring, "--out", one), "holds a run already")
        for refused in (("--comm", "onebitadam:algo=ring"), (*ring, "--goal", self.path("none/x"))):
            gwrun.refusal(gwrun.run(0, "simulate", *words, *refused, "--out", one, "--overwrite"), refused[-1].split(":")[0])
        gwrun.clean(0, "simulate", *words, *ring, "--out", one, "--overwrite", "--check")
        self.assertEqual(gwrun.contents(one), before)
        gwrun.clean(0, "simulate", *words, *ring, "--out", one, "--overwrite", "--quiet")
        self.assertIsNone(gwrun.run_json(one)["options"]["inject-skew"])

    def test_folder_of_folded_ranks(self):
        """Each rank has rows, to 256 of them; what a library's own algorithm is modelled by stands at its name."""
        words = ("--ranks", "512", *LINK, "--bytes", "819200", "--comm", "allreduce:algo=native")
        gwrun.clean(0, "simulate", *words, "--out", self.out)
        run = gwrun.run_json(self.out)
        self.assertEqual((run["comm"]["algorithm"], run["simulated"]["network"]["played"], run["machine"]["ranks"]),
                         ("native (modelled as halving:chunk=0)", 1, 512))
        self.assertEqual((run["simulated"]["rows_of_ranks"], len(gwrun.batches(self.out))), (256, 3 * 256))
        self.assertIn("native (modelled as halving:chunk=0)", gwrun.clean(0, "show", self.out).stdout)

    def test_refusals(self):
        def refused(says, *words):
            gwrun.refusal(gwrun.run(0, "simulate", *words), says)

        whole = ("--ranks", 4, *LINK, "--bytes", "1M")
        refused("--ranks N and --link RATE are needed", "--ranks", 4)
        refused("give --profile or --bytes", "--ranks", 4, *LINK)
        refused("algo=auto may work in memory that ranks share", *whole, "--comm", "iallreduce:algo=auto")
        refused("algo=shm may work in memory", *whole, "--comm", "allreduce:algo=shm")
        refused("--compress threshold: bytes depend on the data", *whole, "--compress", "threshold")
        refused("--compress qsgd+zlib: bytes depend on the data", *whole, "--compress", "qsgd+zlib")
        refused("--comm oktopk --compress none: bytes depend on the data", *whole, "--comm", "oktopk:algo=ring")
        refused("simulated ranks have no threads", *whole, "--comm", "iallreduce:progress=thread,algo=ring")
        refused("--link: rate: 1g: a rate must be a number above 0 with its unit", "--ranks", 4, "--link", "1g", "--bytes", 4)
        refused("latency=fast", "--ranks", 4, "--link", "1gbit,fast", "--bytes", 4)
        refused("more than RATE,LATENCY,OVERHEAD", "--ranks", 4, "--link", "1gbit,0,0,0", "--bytes", 4)
        refused("--bytes 5: floats take a multiple of 4 bytes", "--ranks", 4, *LINK, "--bytes", 5)
        for link in ("1e-3bit", "1e-300bit"):
            refused("it takes more than 104 days", "--ranks", 2, "--link", link, "--bytes", "1M", "--comm", "allreduce:algo=ring")
        refused("fattree: racks=3: 4 hosts cannot be cut into equal racks", *whole, "--network", "fattree:racks=3")
        refused("simulate: inject-skew=1:soon: must be RANK:TIME", *whole, "--comm", "allreduce:algo=ring",
                "--inject-skew", "1:soon")
        refused("simulate: --inject-skew delays rank 4, but the ranks are 0 to 3", *whole, "--comm",
                "allreduce:algo=ring", "--inject-skew", "4:1ms")
        refused("unexpected word", *whole, "--comm", "allreduce:algo=ring", "x")
        refused("simulate: --comm onebitadam: it starts one of MPI's own collectives", *whole,
                "--comm", "onebitadam:algo=ring")
        refused("--comm local: its exchange repeats after 8 steps, and of 3 steps 2 count in a step's figures: play 9 or more",
                *whole, "--comm", "local:algo=ring")
        self.simulate("--bytes", 4, "--comm", "allreduce:algo=ring")  # makes the file that is no folder
        for file in "--json", "--goal", "--chakra":  # before an hour of ranks, not behind
            path = self.path("f.json" if file == "--chakra" else "none", "x")
            refused(path, *whole, "--comm", "allreduce:algo=ring", file, path)

    def test_what_did_not_happen(self):
        """It stands beside the figures, as in a real run."""
        for comm, ranks, why in (("allreduce:algo=ring", 4, None), ("allreduce:algo=ring", 1, "there is 1 rank"),
                                 ("dion:algo=ring", 4, "factors would make no matrix smaller"),
                                 ("iallreduce:algo=ring", 4, "all gradients travel in one piece")):
            run, said = self.simulate("--bytes", "800000", "--comm", comm, ranks=ranks)
            told = run["unmet"] or run["notes"]
            self.assertEqual(told is None, why is None, run)
            self.assertIn(f"{comm.split(':')[0]}: nothing is " if why else "engine:", said)
            self.assertIn(why or "", told or "")

    def test_goal(self):
        """Another engine's times are this one's where links are not shared, and each message has its own tag."""
        path = self.path("f.goal")
        for comm, steps in (("allreduce:algo=(ring:chunk=0)", 1), ("allreduce:algo=(halving:chunk=0)", 2),
                            ("allreduce:algo=doubling", 1), ("iallreduce:algo=(ring:chunk=0),bucket=400000", 1)):
            for ranks in (2, 5, 8) if "ring" in comm else (2, 8):
                run, _ = self.simulate("--bytes", "800000", "--steps", steps, "--comm", comm, "--goal", path,
                                       ranks=ranks)
                text = gwrun.read(path)
                goal = parse(text)
                self.assertEqual(len(goal), ranks)
                sends = [tuple(op[0]) for rank in goal for op in rank.values() if op[0][0] == "send"]
                self.assertEqual(len(sends), run["messages"] * ranks * steps)
                self.assertEqual(len({op[3] for op in sends}), len(sends))
                self.assertEqual(sum(op[1] for op in sends), run["wire_bytes"] * ranks * steps)
                self.assertEqual(re.sub(r"(?m)^(num_ranks \d+|rank \d+ \{|\}|l\d+: calc \d+|l\d+ requires l\d+"
                                        r"|l\d+: (send|recv) \d+b (to|from) \d+ tag \d+)\n", "", text), "")
                if "bucket" not in comm:  # whose messages share links
                    self.assertAlmostEqual(loggp(goal) * 1e-9, steps * run["step_s"], msg=(comm, ranks),
                                           delta=0.01 * steps * run["step_s"])

    def test_chakra(self):
        """The traces are the GOAL text's graph, with times in us."""
        profile = ("--profile", os.path.join(gwrun.SOURCE, "profiles", "resnet18.json"), "--bucket-mb", "100")
        for words in (("--comm", "allreduce:algo=(ring:chunk=0)", "--bytes", "800000"),
                      ("--comm", "iallreduce:algo=(halving:chunk=0)", "--compress", "bf16", *profile)):
            folder = self.path("traces", words[1])
            self.simulate(*words, "--steps", 1, "--goal", self.path("f.goal"), "--chakra", folder, ranks=4)
            goal = parse(gwrun.read(self.path("f.goal")))
            self.assertEqual(sorted(os.listdir(folder)), [f"rank.{r}.et" for r in range(4)])
            for r, rank in enumerate(goal):
                with open(os.path.join(folder, f"rank.{r}.et"), "rb") as file:
                    nodes = trace(file.read(), r)
                self.assertEqual([(label, needs) for label, (_, needs) in nodes.items()],
                                 [(label, needs) for label, (_, needs) in rank.items()])
                ns = us = 0
                for label, (op, _) in rank.items():
                    if op[0] == "calc":
                        ns, us = ns + op[1], us + nodes[label][0][1]
                        self.assertLessEqual(abs(1000 * us - ns), 500)
                    else:
                        self.assertEqual(nodes[label][0], op)
                self.assertEqual(us > 0, "--profile" in words)
