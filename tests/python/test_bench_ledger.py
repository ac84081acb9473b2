"""gradwire bench ledger on reduced sizes: figures of each kernel, and verdicts that follow from them. A
busy machine may change verdicts. Tested are those that no load can change: a stream and a chase through
memory stay memory-bound when they are slowed down."""


import gwrun

SIZES = ["--bytes", "256M", "--edge", "256", "--batches", "10", "--exchanges", "60"]
KERNELS = ["stream", "fma", "chase", "product", "skew"]


class BenchLedger(gwrun.Case):
    def bench(self, ranks, *words):
        path = self.path("out.json")
        done = gwrun.run(ranks, "bench", "ledger", "--json", path, *SIZES, *words)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        rows = gwrun.read_json(path)["results"]
        lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
        for row in rows:
            self.assertIn(row["kernel"], lines)
            verdict = {True: "ok", False: "ELSEWHERE", None: "not measured"}[row["ok"]]
            self.assertTrue(lines[row["kernel"]].endswith(verdict))
        wrong = sum(row["ok"] is False for row in rows)
        self.assertEqual(done.returncode, 1 if wrong else 0)
        if wrong:
            self.assertIn(f"{wrong} of the kernels landed elsewhere", done.stderr)
        return {row["kernel"]: row for row in rows}

    def check_ranges(self, row):
        for source in row["memory_share"].values():
            self.assertEqual(source["low"] is None, source["high"] is None)
            if source["low"] is not None:
                self.assertTrue(0 <= source["low"] <= source["high"] <= 1, row)
        self.assertGreater(row["wall_s"], 0)

    def test_kernels(self):
        rows = self.bench(1)
        self.assertEqual(list(rows), KERNELS[:-1])
        for row in rows.values():
            self.check_ranges(row)
        self.assertIsNone(rows["product"]["memory_share"]["twin"]["low"])

    def test_late_rank(self):
        row = self.bench(2, "--skew", "0.02")["skew"]
        self.assertGreaterEqual(row["injected_s"], 0.02)
        self.assertGreaterEqual(row["waiting_s"], 0)
        self.assertEqual(row["ok"], row["error_s"] <= max(20e-6, 0.05 * row["injected_s"]))
        self.assertGreater(row["wall_s"], row["waiting_s"])

    def test_refused(self):
        for words in (["--bytes", "1"], ["--skew", "0"], ["--batches", "x"]):
            gwrun.refusal(gwrun.run(2, "bench", "ledger", *words))
