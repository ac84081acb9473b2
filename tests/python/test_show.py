"""gradwire show: what it makes of run.json's figures (test_step_time.py has what they are), how it looks
on terminals and elsewhere, and folders that are no runs."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import termios

import gwrun

UTF8 = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"LC_ALL": "C.UTF-8"}
PARTS = ["data", "core", "core_or_memory", "memory", "codec", "waiting", "transfer", "mpi",
         "checkpoint", "other"]


def show(*words, env=None):
    return gwrun.run(0, "show", *words, env=env or dict(os.environ, LC_ALL="C"))


def document(*dirs):
    done = show("--json", *dirs)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["runs"]


class Show(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = {}
        for name, ranks, words in (
                ("alone", 1, []),
                ("blocking", 2, ["--comm", "allreduce:algo=sra"]),
                ("overlap", 2, ["--comm", "iallreduce:algo=sra", "--compress", "qsgd:bits=8",
                                "--update", "lazy"])):
            out = cls.path(name)
            cls.runs[name] = (out, gwrun.train(ranks, out, "--steps", 60, *words))

    def folder(self, name):
        """A copy to spoil."""
        copy = tempfile.mkdtemp(dir=self.dir)
        shutil.copytree(self.runs[name][0], copy, dirs_exist_ok=True)
        return copy

    # ---- figures ----

    def summary(self, out, **changes):
        """Change figures of the summary."""
        gwrun.change(out, lambda run: run["results"]["summary"].update(changes))

    def test_figures_of_real_runs(self):
        for out, run in self.runs.values():
            shown, told = document(out)[0], run["results"]["summary"]
            self.assertEqual((shown["dir"], shown["step_ratio"]), (out, 1))
            self.assertEqual((shown["warmup_steps"], shown["steps"]), (10, 50))
            for mine, theirs in (("computation_s", "compute_s"), ("exposed_s", "exposed_s"),
                                 ("inflight_s", "hidden_s"), ("wire_bytes", "wire_bytes"),
                                 ("interrupted", "interrupted")):
                self.assertEqual(shown[mine], told[theirs])
            for part in ("data", "checkpoint", "other"):
                self.assertEqual(shown["parts"][part + "_s"], told["phases"][part + "_s"])
            self.assertEqual(shown["parts"]["codec_s"], told["codec_s"])

    def test_slowest_rank(self):
        out = self.folder("blocking")

        def own(run):
            for rank, seconds in zip(run["results"]["ranks"], (1e-3, 3e-3)):
                rank["own_s"] = seconds
        gwrun.change(out, own)
        self.assertEqual(document(out)[0]["slowest"], {"rank": 1, "own_s": 3e-3, "mean_own_s": 2e-3})
        self.assertRegex(show(out).stdout, r"slowest rank over mean +rank 1 \+50.0%")
        self.assertIsNone(document(self.runs["alone"][0])[0]["slowest"])

    def test_mesh(self):
        """Where the model lies, and that each rank computes its part of the model alone."""
        out = self.folder("blocking")
        whole = document(out)[0]["products"]["flops_per_s"]
        gwrun.change(out, lambda run: run.update(mesh={
            "data": 1, "pipe": 2, "tensor": 1, "timetable": "1f1b", "microbatches": 4}))
        gwrun.change(out, lambda run: run["machine"].update(workers=1))
        self.assertIn("2 ranks (data 1 x pipe 2 x tensor 1, 1f1b of 4 microbatches) x 1 thread on",
                      show(out).stdout)
        self.assertAlmostEqual(document(out)[0]["products"]["flops_per_s"], whole)

    def test_division_of_computation(self):
        out = self.folder("blocking")
        self.summary(out, compute_s=4e-3, division={
            "source": "twin+model", "core_s": 1e-3, "core_or_memory_s": 2.5e-3, "memory_s": 0.5e-3})
        shown = document(out)[0]
        self.assertEqual(shown["split_source"], "twin+model")
        self.assertEqual([shown["parts"][part + "_s"] for part in PARTS[1:4]],
                         [1e-3, 2.5e-3, 0.5e-3])
        gwrun.change(out, lambda run: run["results"]["summary"]["memory_s"].update(
            codec_twin_s=2e-6, codec_ctr_s=3e-6))
        self.assertRegex(show(out).stdout, r"memory-bound, twin +(2.0 us|0.00 ms)")
        self.assertRegex(show(out).stdout, r"memory-bound, ctr +(3.0 us|0.00 ms)")
        self.summary(out, division=None)
        shown = document(out)[0]["parts"]
        self.assertEqual([shown[part + "_s"] for part in PARTS[1:4]], [None, 4e-3, None])

    def test_waiting_and_transfer(self):
        out = self.folder("blocking")
        self.summary(out, exposed_s=4e-3, waiting_s=1e-3, transfer_s=2e-3)
        shown = document(out)[0]["parts"]
        self.assertEqual([shown[part + "_s"] for part in ("waiting", "transfer")], [1e-3, 2e-3])
        self.assertAlmostEqual(shown["mpi_s"], 1e-3)
        self.summary(out, waiting_s=None)
        shown = document(out)[0]["parts"]
        self.assertEqual([shown[part + "_s"] for part in ("waiting", "transfer", "mpi")],
                         [None, None, 4e-3])

    def test_profile_off(self):
        """Only the wall time was measured: nothing else is shown, and no bar."""
        out = self.path("off")
        run = gwrun.train(2, out, "--steps", 40, "--profile", "off")
        shown = document(out)[0]
        self.assertEqual([x for x in shown["parts"].values() if x is not None], [])
        self.assertEqual([shown[key] for key in ("wire_bytes", "interrupted", "rest_s")], [None] * 3)
        self.assertEqual(shown["step_s"], run["results"]["summary"]["wall_s"])
        text = show(out).stdout
        self.assertRegex(text, r"(?m)^step +[\d.]+ .s +\|$")
        self.assertRegex(text, r"computation +absent")
        self.assertRegex(text, r"slowest rank over mean +absent")

    def test_interrupted_steps(self):
        out = self.folder("blocking")
        self.summary(out, interrupted=0.74, spread={"p10_s": 0.4e-3, "p90_s": 9e-3}, halves={
            "odd_s": 0.001, "even_s": 0.002, "first_s": 0.0015, "last_s": 0.0016, "apart": 0.66, "warned": True})
        text = show(out).stdout
        self.assertIn("steady mean of 50 steps after 10 of warm-up, 400.0 to 9000.0 us (10th to 90th percentile), "
                      "in 74.0% of them a rank was interrupted\n", text)
        self.assertIn("WARNING: halves of its steps disagree: odd blocks take 1000.0 us, even ones 2000.0, the first "
                      "half 1500.0, the last 1600.0: its times are not to be trusted\n", text)
        done = gwrun.run(1, "table", out).stdout
        self.assertIn(f"{os.path.basename(out)} %", done)
        self.assertIn("%: " + os.path.basename(out) + ": halves of its steps disagree: odd blocks take", done)
        self.summary(out, spread=None, halves=None)
        self.assertIn("of warm-up, in 74.0% of them", show(out).stdout)
        self.assertNotIn("disagree", show(out).stdout + gwrun.run(1, "table", out).stdout)

    def test_overhead_that_cannot_be_told(self):
        out = self.folder("blocking")
        told = {"ratio": 1.01, "ci_low": 0.95, "ci_high": 1.02, "pairs": 30}
        gwrun.change(out, lambda run: run.update(overhead=told))
        self.assertIn("own overhead: +1.00% of a step (95%: -5.00% .. +2.00%), 30 pairs",
                      show(out).stdout)
        told["ci_high"] = 6.95
        gwrun.change(out, lambda run: run.update(overhead=told))
        self.assertIn("own overhead: not measurable here: 30 pairs", show(out).stdout)

    def test_emulated_links_cost(self):
        """Runs from before train noted whether it warned are judged by the cost itself."""
        out = self.folder("blocking")
        link = {"emulated": True, "hosts": 2, "rate_bits_per_s": 1e9, "cost": {
            "seconds": 2, "ranks_system_s": 1, "cores_per_rank": 0.06}}
        gwrun.change(out, lambda run: run.update(link=link))
        self.assertIn("(overlap looks worse)", show(out).stdout)
        link["cost"]["warned"] = False
        gwrun.change(out, lambda run: run.update(link=link))
        self.assertNotIn("(overlap looks worse)", show(out).stdout)

    def test_folder_of_runs(self):
        """Its runs are listed, with how to see one; what is no run is ignored."""
        os.makedirs(self.path("list", "no-run"))
        for name in ("alone", "overlap"):
            shutil.copytree(self.runs[name][0], self.path("list", name))
        text = show(self.path("list")).stdout
        self.assertEqual(len(re.findall(r"(?m)^\[\d\] +[\d.]+ .s +[\d.]+x \|", text)), 2)
        self.assertRegex(text, r"(?m)^\[2\] .*/overlap: iallreduce .*; steady mean of 50 steps(, UNSETTLED)?$")
        self.assertIn(f"gradwire show {self.dir}/list/alone", text)
        self.assertEqual(len(document(self.path("list"))), 2)
        os.truncate(self.path("list", "alone", "run.json"), 300)
        text = show(self.path("list")).stdout  # one run left: in full
        self.assertIn("computation", text)
        self.assertRegex(text, "(?m)^left out: .*list/alone/run.json: not valid JSON")

    # ---- what else a run tells ----

    def test_straggler(self):
        out = self.folder("blocking")
        told = {"rank": 1, "of_waiting": 0.9, "last_share": 0.25, "waited_s": 2e-3, "of_step": 0.5}
        gwrun.change(out, lambda run: run["results"].update(straggler=told))
        self.assertEqual(document(out)[0]["straggler"], told)
        self.assertIn("straggler: rank 1; each other rank waited 2000.0 us per step for it (50.0% of the "
                      "step), 90% of all waiting for late ranks", show(out).stdout)
        ranks = gwrun.run_json(out)["results"]["ranks"]
        for waited, said in ((1e-9, "none noticeable"), (None, "not measured")):
            rows = [{**row, "waited_for_s": waited} for row in ranks]
            gwrun.change(out, lambda run, rows=rows: run["results"].update(straggler=None, ranks=rows))
            self.assertIn(f"straggler: {said}\n", show(out).stdout)

    def test_ceilings(self):
        out = self.folder("blocking")
        gwrun.change(out, lambda run: run.update(ceilings=None))
        self.assertIn("ceilings: absent", show(out).stdout)
        self.assertIsNone(document(out)[0]["products"]["share"])
        gwrun.change(out, lambda run: run.update(ceilings={
            "source": "measured", "drifted": True,
            "fma_flops_per_s": {"one": 1.5e11, "all": 1e11},
            "links": [{"beta_s_per_byte": 1e-9}, {"beta_s_per_byte": 2e-9}]}))
        shown, text = document(out)[0], show(out).stdout
        # 784-256-128-10 on 32 samples a rank; nobody needs the gradient of the images.
        flops = 2 * 32 * (2 * 784 * 256 + 3 * 256 * 128 + 3 * 128 * 10)
        phases = gwrun.run_json(out)["results"]["summary"]["phases"]
        rate = flops / (phases["forward_s"] + phases["backward_s"])
        self.assertAlmostEqual(shown["products"]["flops_per_s"] / rate, 1, places=6)
        self.assertEqual(shown["products"]["ceiling_flops_per_s"], 1.5e11)
        self.assertIn(f"({100 * rate / 1.5e11:.1f}%)", text)
        self.assertIn("DRIFTED", text)
        self.assertIn(f"0.50 GB/s; a rank's wire bytes take it {2e-3 * shown['wire_bytes']:.1f} us",
                      text)

    # ---- looks ----

    def rows(self, text, label):
        return [line for line in text.splitlines() if label in line]

    def test_text_holds_the_same_figures(self):
        out = self.runs["overlap"][0]
        shown, text = document(out)[0], show(out).stdout
        for label, s in (("data ", shown["parts"]["data_s"]), ("codec ", shown["parts"]["codec_s"]),
                         ("computation ", shown["computation_s"]),
                         ("exposed communication", shown["exposed_s"])):
            line = [x for x in self.rows(text, label) if "%" in x and "steps" not in x][0]
            scale = {"us": 1e6, "ms": 1e3}[re.search(r"\d (us|ms) ", line).group(1)]
            value, share = re.search(r"([\d.]+) .s +([\d.]+)%", line).groups()
            self.assertAlmostEqual(float(value), s * scale, delta=0.051)
            self.assertAlmostEqual(float(share), 100 * s / shown["step_s"], delta=0.051)
        self.assertIn("iallreduce over sra, codec qsgd:bits=8", text)
        self.assertIn("2 ranks x 1 thread on 1 node", text)
        self.assertIn("wire_bytes: measured", text)

    def test_bars_share_a_scale(self):
        dirs = [self.runs[name][0] for name in ("blocking", "overlap", "alone")]
        shown, text = document(*dirs), show(*dirs).stdout
        bars = [line.split("|")[1] for line in text.splitlines() if "x |" in line]
        self.assertEqual(len(bars), 3)
        totals = [sum(x or 0 for x in run["parts"].values()) for run in shown]
        scale = max(totals + [run["step_s"] for run in shown]) / 52
        for run, bar, total in zip(shown, bars, totals):
            self.assertAlmostEqual(len(bar), total / scale, delta=1)
            self.assertAlmostEqual(bar.count("D"), run["parts"]["data_s"] / scale, delta=1.01)
            self.assertAlmostEqual(bar.count("K"), run["parts"]["codec_s"] / scale, delta=1.01)
        for run in shown:
            self.assertAlmostEqual(run["step_ratio"], run["step_s"] / shown[0]["step_s"], places=6)
            self.assertIn(f"{run['step_ratio']:.2f}x |", text)
        self.assertLessEqual(max(map(len, text.split("\n\n")[1].splitlines())), 80)

    def test_many_runs(self):
        text = show(*[self.runs["blocking"][0]] * 5).stdout
        table = [line for line in text.splitlines() if line.startswith("  computation")]
        self.assertEqual([line.count("%") for line in table], [3, 2])

    def test_ascii(self):
        out = self.runs["blocking"][0]
        self.assertTrue(show(out).stdout.isascii())
        self.assertTrue(show("--ascii", out, env=UTF8).stdout.isascii())
        self.assertIn("▓", show(out, env=UTF8).stdout)
        self.assertNotIn("\033", show(out, env=UTF8).stdout)

    def on_terminal(self, **env):
        """What show prints on a terminal 100 characters wide."""
        try:
            main, child = pty.openpty()
        except OSError as error:  # a chroot without /dev/pts
            self.skipTest(f"no terminal to be had: {error}")
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        with subprocess.Popen([gwrun.GRADWIRE, "show", self.runs["blocking"][0]], stdout=child,
                              env={**UTF8, "TERM": "xterm", **env}) as process:
            os.close(child)
            text = b""
            while True:
                try:
                    piece = os.read(main, 65536)
                except OSError:
                    break
                if not piece:
                    break
                text += piece
            self.assertEqual(process.wait(timeout=300), 0)
        os.close(main)
        return text.decode()

    def test_terminal(self):
        coloured = self.on_terminal()
        self.assertIn("\033[", coloured)
        plain = self.on_terminal(NO_COLOR="1")
        self.assertNotIn("\033", plain)
        self.assertEqual(re.sub("\033\\[\\d+m", "", coloured), plain)
        self.assertGreater(max(len(line) for line in plain.splitlines() if "|" in line), 80)
        self.assertNotIn("\033", self.on_terminal(TERM="dumb"))

    # ---- bad folders ----

    def refused(self, *words, has, ranks=0):
        gwrun.refusal(gwrun.run(ranks, "show", *words) if ranks else show(*words), *has)

    def test_no_run(self):
        nothing = self.path("nothing")
        self.refused(has=["which run?"])
        self.refused(nothing, has=[nothing, "No such file"])
        self.refused(nothing, ranks=2, has=[nothing])
        os.mkdir(nothing)
        self.refused(nothing, has=["run.json", "not the folder of a finished run"])
        os.rmdir(nothing)
        self.refused(self.runs["alone"][0], nothing, has=[nothing])
        self.refused("--colour", nothing, has=["'colour'"])

    def test_half_written(self):
        out = self.folder("alone")
        os.remove(os.path.join(out, "run.json"))
        self.refused(out, has=["finished run"])
        out = self.folder("alone")
        os.truncate(os.path.join(out, "run.json"), 300)
        self.refused(out, has=["not valid JSON"])

    def test_foreign(self):
        out = self.folder("alone")
        gwrun.change(out, lambda run: run.update(schema=99))
        self.refused(out, has=["schema 99"])
        gwrun.change(out, lambda run: run.pop("schema"))
        self.refused(out, has=["schema"])
        out = self.folder("alone")
        gwrun.change(out, lambda run: run["results"].pop("summary"))
        self.refused(out, has=["results.summary"])
        gwrun.write(os.path.join(out, "run.json"), "[1, 2]\n")
        self.refused(out, has=["schema"])

    def test_no_step_counted(self):
        for changes in ({"batches": 0}, {"batches": 61}, {"wall_s": None}):
            out = self.folder("alone")
            self.summary(out, **changes)
            self.refused(out, has=["no time of a step"])
