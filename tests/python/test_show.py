"""gradwire show: its figures against medians worked out here from batches.csv, how it looks on
terminals and elsewhere, and folders that are no runs."""

import csv
import fcntl
import json
import os
import pty
import random
import re
import shutil
import struct
import subprocess
import tempfile
import termios
import unittest

from statistics import median

import gwrun

UTF8 = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"LC_ALL": "C.UTF-8"}
PARTS = ["data", "core", "core_or_memory", "memory", "codec", "waiting", "transfer", "mpi",
         "checkpoint", "other"]
COMPUTE = ["forward_s", "backward_s", "update_s"]
MPI = ["mpi_post_s", "mpi_poll_s", "mpi_wait_s"]


def show(*words, env=None):
    return subprocess.run([gwrun.GRADWIRE, "show", *words], text=True, capture_output=True,
                          env=env or dict(os.environ, LC_ALL="C"), check=False, timeout=300,
                          stdin=subprocess.DEVNULL)


def document(*dirs):
    done = show("--json", *dirs)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["runs"]


def steps(out, warmup):
    """Lists of rows, a step each, that figures are to be taken over."""
    by_step = {}
    for row in gwrun.batches(out):
        by_step.setdefault(int(row["step"]), []).append(row)
    later = [by_step[step] for step in sorted(by_step)][warmup:]
    clean = [rows for rows in later if all(row["clean"] == "1" for row in rows)]
    return clean or later


def figure(all_steps, *columns, over=None):
    """Median over steps of the mean over the ranks (or `over`) of the columns' sum."""
    def one(rows):
        values = [sum(float(row[c]) for c in columns) for row in rows]
        return over(values) if over else sum(values) / len(values)
    return median(one(rows) for rows in all_steps)


def rewrite(out, change, header=None):
    """Pass each row of batches.csv through `change`."""
    rows = gwrun.batches(out)
    with open(os.path.join(out, "batches.csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header or list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            change(row)
            writer.writerow(row)


class Show(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.runs = {}
        for name, ranks, words in (
                ("alone", 1, []),
                ("blocking", 2, ["--comm", "allreduce:algo=sra"]),
                ("overlap", 2, ["--comm", "iallreduce:algo=sra", "--compress", "qsgd:bits=8",
                                "--update", "lazy"])):
            out = os.path.join(cls.dir.name, name)
            cls.runs[name] = (out, gwrun.train(ranks, out, "--steps", 60, *words))

    def folder(self, name):
        """A copy to spoil."""
        copy = tempfile.mkdtemp(dir=self.dir.name)
        shutil.copytree(self.runs[name][0], copy, dirs_exist_ok=True)
        return copy

    def edit(self, out, change):
        path = os.path.join(out, "run.json")
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        change(run)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(run, file)

    def near(self, shown, expected):
        self.assertAlmostEqual(shown, expected, delta=1e-8 * abs(expected) + 1e-15)

    # ---- figures ----

    def check_figures(self, shown, out, warmup):
        mine = steps(out, warmup)
        self.assertEqual((shown["warmup_steps"], shown["steps_used"]), (warmup, len(mine)))
        self.near(shown["step_s"], figure(mine, "wall_s", over=max))
        self.near(shown["computation_s"], figure(mine, *COMPUTE))
        self.near(shown["exposed_s"], figure(mine, *MPI))
        self.near(shown["inflight_s"], figure(mine, "inflight_s"))
        self.near(shown["wire_bytes"], figure(mine, "wire_bytes"))
        for part, columns in (("data", ["data_s"]), ("codec", ["encode_s", "decode_s"]),
                              ("checkpoint", ["checkpoint_s"]), ("other", ["other_s"])):
            self.near(shown["parts"][part + "_s"], figure(mine, *columns))
        return mine

    def test_medians_of_real_runs(self):
        for out, run in self.runs.values():
            shown = document(out)[0]
            self.check_figures(shown, out, 60 - run["results"]["summary"]["batches"])
            self.assertEqual(shown["step_ratio"], 1)
            self.assertEqual(shown["dir"], out)

    def test_parts_sum_to_the_step(self):
        """With equal steps on all ranks; otherwise medians do not add up."""
        for name in self.runs:
            out = self.folder(name)
            first = gwrun.batches(out)[10]
            alike = {key: text for key, text in first.items()
                     if key == "source" or key.endswith("_s") and key != "t_start_s"}
            rewrite(out, lambda row, alike=alike: row.update(alike))
            shown = document(out)[0]
            parts = [x for x in shown["parts"].values() if x is not None]
            self.assertAlmostEqual(sum(parts), shown["step_s"], delta=1e-6 * shown["step_s"])

    def test_slowest_rank(self):
        out = self.folder("blocking")

        def slow(row):
            if row["rank"] == "1":
                row["forward_s"] = str(float(row["forward_s"]) + 1)
                row["wall_s"] = str(float(row["wall_s"]) + 1)
        rewrite(out, slow)
        shown = document(out)[0]["slowest"]
        mine = steps(out, 10)

        def own(rank):
            all_own = [float(rows[rank]["wall_s"]) - sum(float(rows[rank][c]) for c in MPI)
                       for rows in mine]
            return sum(all_own) / len(all_own)
        self.assertEqual(shown["rank"], 1)
        self.near(shown["own_s"], own(1))
        self.near(shown["mean_own_s"], (own(0) + own(1)) / 2)
        self.assertIn("slowest rank", show(out).stdout)
        self.assertIsNone(document(self.runs["alone"][0])[0]["slowest"])

    def test_split_by_counters(self):
        out = self.folder("blocking")

        def split(row):
            step = int(row["step"])
            compute = sum(float(row[c]) for c in COMPUTE)
            # Half of the batches have no counters; a model is there, too, and is not mixed in.
            row["memory_ctr_s"] = f"{0.25 * compute:.12g}" if step % 2 else ""
            row["core_ctr_s"] = f"{0.75 * compute:.12g}" if step % 2 else ""
            row["memory_codec_ctr_s"] = "3e-6"
            row["core_twin_s"] = row["memory_twin_s"] = "1e-6"
        rewrite(out, split)
        shown = document(out)[0]
        mine = [rows for rows in steps(out, 10) if rows[0]["memory_ctr_s"]]
        self.assertEqual(shown["split_source"], "ctr")
        self.near(shown["parts"]["memory_s"], figure(mine, "memory_ctr_s"))
        self.near(shown["parts"]["core_s"], figure(mine, "core_ctr_s"))
        self.assertIsNone(shown["parts"]["core_or_memory_s"])
        self.assertEqual(shown["codec_memory_ctr_s"], 3e-6)
        self.assertRegex(show(out).stdout, r"memory-bound, ctr +(3.0 us|0.00 ms)")

    def test_split_by_twins_and_model(self):
        out = self.folder("blocking")

        def split(row):
            compute = sum(float(row[c]) for c in COMPUTE)
            for column in ("core_ctr_s", "memory_ctr_s"):
                row[column] = ""
            row["core_twin_s"], row["memory_twin_s"] = f"{compute / 10:.12g}", f"{compute / 5:.12g}"
            row["core_model_lo_s"], row["core_model_hi_s"] = f"{compute / 4:.12g}", "1"
            row["memory_model_lo_s"], row["memory_model_hi_s"] = "0", "1"
            row["memory_codec_twin_s"] = "2e-6"
        rewrite(out, split)
        shown = document(out)[0]
        mine = steps(out, 10)
        compute = figure(mine, *COMPUTE)
        self.assertEqual(shown["split_source"], "twin+model")
        self.assertAlmostEqual(shown["parts"]["core_s"] / compute, 0.35, places=6)
        self.assertAlmostEqual(shown["parts"]["memory_s"] / compute, 0.2, places=6)
        self.assertAlmostEqual(shown["parts"]["core_or_memory_s"] / compute, 0.45, places=6)
        self.assertEqual(shown["codec_memory_twin_s"], 2e-6)
        self.assertRegex(show(out).stdout, r"memory-bound, twin +(2.0 us|0.00 ms)")

    def test_waiting_and_transfer(self):
        out = self.folder("blocking")

        def divide(row):
            wait = float(row["mpi_wait_s"])
            row["wait_skew_s"], row["transfer_s"] = f"{wait / 4:.12g}", f"{wait / 2:.12g}"
        rewrite(out, divide)
        shown = document(out)[0]["parts"]
        mine = steps(out, 10)
        self.near(shown["waiting_s"], figure(mine, "wait_skew_s"))
        self.near(shown["transfer_s"], figure(mine, "transfer_s"))

    def test_absent_is_absent(self):
        """Files that lack columns: older ones, and those of runs without timers."""
        out = self.folder("blocking")
        self.assertNotIn("absent", [line.split()[-1] for line in show(out).stdout.splitlines()
                                    if line.startswith("  computation")])
        rows = gwrun.batches(out)
        with open(os.path.join(out, "batches.csv"), "w", encoding="utf-8") as file:
            file.write("wall_s,rank,step,clean\n")
            for row in rows:
                file.write(f"{row['wall_s']},{row['rank']},{row['step']},{row['clean']}\n")
        shown = document(out)[0]
        self.assertEqual([shown["parts"][part + "_s"] for part in PARTS], [None] * len(PARTS))
        self.near(shown["step_s"], figure(steps(out, 10), "wall_s", over=max))
        text = show(out).stdout
        self.assertRegex(text, r"computation +absent")
        self.assertRegex(text, r"slowest rank +absent")

    def test_profile_off(self):
        """Only the wall time was measured: nothing else is shown, and no bar."""
        out = os.path.join(self.dir.name, "off")
        gwrun.train(2, out, "--steps", 40, "--profile", "off")
        shown = document(out)[0]
        self.assertEqual([x for x in shown["parts"].values() if x is not None], [])
        self.assertEqual((shown["wire_bytes"], shown["clean_steps"]), (None, None))
        self.near(shown["step_s"], figure(steps(out, 10), "wall_s", over=max))
        self.assertRegex(show(out).stdout, r"(?m)^step +[\d.]+ .s +\|$")

    def test_contaminated_steps(self):
        out = self.folder("blocking")

        def taint(row):
            row["clean"] = "0" if row["rank"] == "1" and int(row["step"]) % 4 else "1"
        rewrite(out, taint)
        shown = document(out)[0]
        self.assertEqual((shown["steps"], shown["clean_steps"], shown["contaminated"]),
                         (50, 13, False))
        self.check_figures(shown, out, 10)
        self.assertIn("37 of them contaminated (74.0%): medians over 13 clean",
                      show(out).stdout)
        rewrite(out, lambda row: row.update(clean="0"))
        shown = document(out)[0]
        self.assertEqual((shown["clean_steps"], shown["steps_used"], shown["contaminated"]),
                         (0, 50, True))
        self.check_figures(shown, out, 10)
        self.assertIn("NONE CLEAN", show(out).stdout)

    def test_very_many_steps(self):
        """Beyond 65536 steps a sample of them stands for all."""
        out, n = self.folder("alone"), 200000
        draw = random.Random(1)
        walls = [draw.random() for _ in range(n)]
        with open(os.path.join(out, "batches.csv"), "w", encoding="utf-8") as file:
            file.write("rank,step,wall_s,clean\n")
            file.writelines(f"0,{i + 1},{wall:.9g},1\n" for i, wall in enumerate(walls))
        shown = document(out)[0]
        self.assertEqual((shown["steps"], shown["steps_used"]), (n - 10, 65536))
        # The sample's median is that of all within 0.2% of the distribution (one sigma).
        self.assertAlmostEqual(shown["step_s"], 0.5, delta=0.01)
        self.assertIn("65536 clean, drawn at random", show(out).stdout)

    # ---- what else a run tells ----

    def test_straggler(self):
        out = self.folder("blocking")
        told = {"rank": 1, "last_share": 0.75, "waited_s": 2e-3, "of_step": 0.5}
        self.edit(out, lambda run: run["results"].update(straggler=told))
        self.assertEqual(document(out)[0]["straggler"], told)
        self.assertIn("straggler: rank 1, last at 75% of the exchanges; each other rank waited ",
                      show(out).stdout)

    def test_saved(self):
        out = self.folder("overlap")
        self.assertIn("saved by overlap: absent", show(out).stdout)
        names = ("saved_s", "saved_ci_low_s", "saved_ci_high_s", "interference_s",
                 "interference_ci_low_s", "interference_ci_high_s")
        paired = dict(zip(names, [-2e-6, -3e-6, 1e-6, 4e-6, 3e-6, 5e-6]), pairs=77)
        self.edit(out, lambda run: run["results"].update(paired=paired))
        self.assertIn("saved by overlap: -2.0 us (95%: -3.0 .. 1.0), 77 pairs; interference 4.0 us "
                      "(3.0 .. 5.0)", show(out).stdout)
        self.assertEqual(document(out)[0]["paired"]["saved_s"], -2e-6)

    def test_ceilings(self):
        out = self.folder("blocking")
        self.edit(out, lambda run: run.update(ceilings=None))
        self.assertIn("ceilings: absent", show(out).stdout)
        self.assertIsNone(document(out)[0]["products"]["share"])
        self.edit(out, lambda run: run.update(ceilings={
            "source": "measured", "drifted": True,
            "fma_flops_per_s": {"one": 1.5e11, "all": 1e11},
            "links": [{"beta_s_per_byte": 1e-9}, {"beta_s_per_byte": 2e-9}]}))
        shown, text = document(out)[0], show(out).stdout
        # 784-256-128-10 on 32 samples a rank; nobody needs the gradient of the images.
        flops = 2 * 32 * (2 * 784 * 256 + 3 * 256 * 128 + 3 * 128 * 10)
        rate = flops / figure(steps(out, 10), "forward_s", "backward_s")
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

    def refused(self, *words, ranks=0, **more):
        if ranks:
            done = gwrun.run(ranks, "show", *words)
        else:
            done = show(*words)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in more["has"]:
            self.assertIn(word, done.stderr)

    def test_no_run(self):
        nothing = os.path.join(self.dir.name, "nothing")
        self.refused(has=["which run?"])
        self.refused(nothing, has=[nothing, "No such file"])
        self.refused(nothing, ranks=2, has=[nothing])
        self.refused(self.dir.name, has=["run.json"])
        self.refused(self.runs["alone"][0], nothing, has=[nothing])
        self.refused("--colour", nothing, has=["'colour'"])

    def test_half_written(self):
        out = self.folder("alone")
        os.remove(os.path.join(out, "batches.csv"))
        self.refused(out, has=["batches.csv"])
        out = self.folder("alone")
        os.remove(os.path.join(out, "run.json"))
        self.refused(out, has=["finished run"])
        out = self.folder("alone")
        os.truncate(os.path.join(out, "run.json"), 300)
        self.refused(out, has=["not valid JSON"])
        out = self.folder("blocking")
        path = os.path.join(out, "batches.csv")
        os.truncate(path, os.path.getsize(path) - 5)
        self.refused(out, has=["line 121", "half-written"])
        os.truncate(path, 0)
        self.refused(out, has=["empty"])

    def test_foreign(self):
        out = self.folder("alone")
        self.edit(out, lambda run: run.update(schema=99))
        self.refused(out, has=["schema 99"])
        self.edit(out, lambda run: run.pop("schema"))
        self.refused(out, has=["schema"])
        out = self.folder("alone")
        self.edit(out, lambda run: run["results"].pop("summary"))
        self.refused(out, has=["results.summary"])
        with open(os.path.join(out, "run.json"), "w", encoding="utf-8") as file:
            file.write("[1, 2]\n")
        self.refused(out, has=["schema"])

    def test_damaged_rows(self):
        for spoil, words in ((lambda row: row.update(wall_s="fast"), ["wall_s", "'fast'"]),
                             (lambda row: row.update(rank="7"), ["rank 0"]),
                             (lambda row: row.update(wall_s=""), ["wall_s"]),
                             (lambda row: row.update(data_s="inf"), ["data_s", "'inf'"])):
            out = self.folder("blocking")
            rewrite(out, spoil)
            self.refused(out, has=["batches.csv, line 2"] + words)
        out = self.folder("blocking")
        with open(os.path.join(out, "batches.csv"), "a", encoding="utf-8") as file:
            file.write("0,1\n")
        self.refused(out, has=["line 122", "2 fields"])
        out = self.folder("blocking")
        self.edit(out, lambda run: run["machine"].update(ranks=3))
        self.refused(out, has=["rank 2"])
        with open(os.path.join(out, "batches.csv"), "wb") as file:
            file.write(bytes(200000))
        self.refused(out, has=["line 1"])

    def test_nothing_after_warmup(self):
        out = self.folder("alone")
        self.edit(out, lambda run: run["results"].update(steps=1000))
        self.refused(out, has=["no step after the 60 of warm-up"])


if __name__ == "__main__":
    unittest.main()
