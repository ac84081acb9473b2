"""experiments/testbed: the real thing where root, ip and tc exist; else its one-line refusal."""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import unittest

import gwrun
import identities

from reporting import racks

TESTBED = os.path.join(gwrun.SOURCE, "experiments/testbed")


def possible():
    """Root in a container, or in a chroot, may not be allowed what a testbed is made of (ip cannot
    mount over a chroot's root), and its kernel may not have it. Any other reason to fail is one to
    look at, not to skip for."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    space = f"gw-possible-{os.getpid()}"
    done = gwrun.finished(["sh", "-c", f"ip netns add {space} && ip netns exec {space} true && "
                           f"ip -n {space} link add port type veth peer name eth0 && "
                           f"ip -n {space} link add bridge type bridge && tc -n {space} qdisc add dev port root "
                           f"tbf rate 1mbit burst 10k limit 10k; status=$?; ip netns del {space}; exit $status"])
    if done.returncode and not re.search(
            "not permitted|denied|not supported|unknown|mount --make-rslave / failed",
            done.stderr.replace('"', ""), re.IGNORECASE):
        raise RuntimeError(done.stderr)
    return done.returncode == 0


POSSIBLE = possible()
LAUNCHER = POSSIBLE and re.search("HYDRA|OpenRTE", gwrun.finished([gwrun.MPIEXEC, "--version"]).stdout)
MPIEXEC = ("--mpiexec", gwrun.MPIEXEC)
RATE = 200_000_000  # bit/s: slow enough for any machine to keep up
BUSY_S = 0.2  # of a core, which BUSY uses up, and prints how long that took
BUSY = f"""
import time
begin, used = time.monotonic(), time.process_time()
while time.process_time() - used < {BUSY_S}:
    pass
print(time.monotonic() - begin)
"""
SINK = """
import socket
with socket.create_server(("", 7078)) as server:
    print("ready", flush=True)
    peer, _ = server.accept()
left = 2 << 20
while left:
    left -= len(peer.recv(min(left, 1 << 20))) or exit(1)
peer.sendall(b"k")
"""
SOURCE = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7078)) as peer:
    begin = time.monotonic()
    peer.sendall(bytes(2 << 20))
    peer.recv(1)
    print(time.monotonic() - begin)
"""
needs_launcher = unittest.skipUnless(LAUNCHER, "this MPI is started otherwise; see test_no_launcher")


def outside():
    """What must not change: the interfaces, routes and queues of the machine, without counters."""
    return [gwrun.said("ip", "-o", "link"), gwrun.said("ip", "-4", "route"), gwrun.said("ip", "-6", "route"),
            gwrun.said("ip", "rule"), gwrun.said("tc", "qdisc", "show")]


class Testbed(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.name = f"test{os.getpid()}"
        self.env = dict(os.environ, XDG_RUNTIME_DIR=self.dir)

    def call(self, verb, *words, **more):
        return gwrun.finished([sys.executable, TESTBED, verb, "--name", self.name, *words],
                              **{"env": self.env, **more})

    def must(self, verb, *words):
        return gwrun.well(self.call(verb, *words))

    def spaces(self):
        return [line for line in gwrun.said("ip", "netns", "list").splitlines()
                if line.startswith(f"gw-{self.name}-")]


def spaces_of_all():
    return {line.split()[0] for line in gwrun.said("ip", "netns", "list").splitlines()
            if line.startswith(("gw-probe", "gw-test"))}


class Refusals(Testbed):
    """These need nothing of the machine."""

    def test_without_tools(self):
        gwrun.refusal(self.call("up", env=dict(self.env, PATH="/nowhere")), "ip and tc",
                     "iproute2")

    def test_without_root(self):
        tools = self.path("bin")
        os.mkdir(tools)
        for tool in ("ip", "tc"):  # present, whatever the machine has
            gwrun.write(os.path.join(tools, tool), "#!/bin/sh\nexit 9\n")
            os.chmod(os.path.join(tools, tool), 0o755)
        os.chmod(self.dir, 0o755)
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        python = shutil.which("python3", path="/usr/bin") or sys.executable
        tree = self.path("experiments")  # a copy that this user can read
        shutil.copytree(os.path.dirname(TESTBED), tree, copy_function=shutil.copyfile,
                        ignore=lambda at, names: [] if at.endswith("emulation") else
                        [name for name in names if name not in ("testbed", "emulation", "processes.py")])
        os.makedirs(self.path("analysis", "reporting"))
        for name in ("tool.py", "reporting/base.py"):  # all that it needs of there
            shutil.copyfile(os.path.join(os.path.dirname(TESTBED), "../analysis", name), self.path("analysis", name))
        done = subprocess.run([python, os.path.join(tree, "testbed"), "up"], text=True,
                              capture_output=True, check=False, cwd="/",
                              env=dict(self.env, PATH=tools, LD_PRELOAD=""), **user)  # out of reach
        gwrun.refusal(done, "root")
        self.assertEqual(sorted(os.listdir(self.dir)), ["analysis", "bin", "experiments"])

    def test_not_allowed(self):
        """Where a testbed is possible, a substitute for ip answers as a container would."""
        env = self.env
        if POSSIBLE or os.geteuid() != 0:
            tools = self.path("bin")
            os.mkdir(tools)
            for tool in ("ip", "tc"):
                gwrun.write(os.path.join(tools, tool), "#!/bin/sh\necho Operation not permitted >&2\nexit 1\n")
                os.chmod(os.path.join(tools, tool), 0o755)
            env = dict(env, PATH=tools)
        gwrun.refusal(self.call("up", env=env), "root")
        self.assertEqual([n for n in os.listdir(self.dir) if "testbed" in n], [])

    def test_options(self):
        for words, says in ((("up", "--rate", "1furlong"), "1furlong"),
                            (("up", "--hosts", "1"), "'1'"), (("up", "--host", "x"), "'x'"),
                            (("up", "--slow", "3:0.5"), "1 to 2"),
                            (("up", "--slow", "2:0.5", "--slow", "2:0.4"), "twice"),
                            (("up", "--slow", "2:1"), "'2:1'"),
                            (("up", "--rate", "1gbit/"), "''"), (("up", "--rate", "1gbit,,"), "''"),
                            (("up", "--rate", "1gbit,2gbit", "--hosts", "3"), "2 rates for 3"),
                            (("up", "--offload", "0"), "'0'"), (("up", "--offload", "45"), "'45'"),
                            (("up", "--mtu", "9001"), "'9001'"),
                            (("up", "--hosts", "4", "--racks", "3", "--uplink", "1gbit"), "3 racks cannot share 4"),
                            (("up", "--hosts", "2", "--racks", "4", "--uplink", "1gbit"), "4 racks cannot share 2"),
                            (("up", "--hosts", "4", "--racks", "2"), "give uplink"),
                            (("up", "--uplink", "1gbit"), "a single rack has none"),
                            (("up", "--racks", "2", "--uplink", "fast"), "'fast'"),
                            (("up", "--racks", "0"), "'0'"), (("up", "--racks", "two"), "'two'"),
                            (("run",), "command"), (("exec", "0", "ls"), "'0'")):
            gwrun.refusal(self.call(*words), says)


@unittest.skipUnless(POSSIBLE, "the refusals above are what there is to test")
class Standing(Testbed):
    def setUp(self):
        super().setUp()
        self.before = outside()
        self.addCleanup(self.gone)

    def gone(self):
        """Runs in every case: nothing stays."""
        self.must("down")
        self.assertEqual(self.spaces(), [])
        self.assertEqual([n for n in os.listdir(self.dir) if "testbed" in n], [])
        self.assertEqual(outside(), self.before)

    def up(self, hosts=2, *more):
        return self.must("up", "--hosts", str(hosts), "--rate", f"{RATE // 1000000}mbit", *more)

    def train(self, ranks, *words):
        out = self.path("run")
        self.must("run", *MPIEXEC, "-n", str(ranks), "--", gwrun.GRADWIRE, "train", "--quiet", "--data",
                  "synthetic:samples=2000,features=256,classes=4", "--layers", "256", "--steps",
                  "20", "--overhead", "0", "--ceilings", "off", "--out", out, *words)
        return gwrun.run_json(out), gwrun.batches(out)

    def test_no_launcher(self):
        self.up()
        gwrun.refusal(self.call("run", "--mpiexec", "true", "--", "true"), "neither Hydra")

    @needs_launcher
    def test_train_over_the_link(self):
        self.assertIn("is up", self.up())
        self.assertIn("is up already", self.up())
        gwrun.refusal(self.call("up", "--hosts", "3"), "2 hosts", "down")
        self.assertEqual(outside(), self.before)
        run, rows = self.train(2, "--comm", "allreduce:algo=sra")
        link = run["link"]
        cost = link.pop("cost")
        self.assertEqual(link, {"emulated": True, "hosts": 2, "rate_bits_per_s": RATE,
                                "slow_hosts": None, "host_rates": None, "racks": None,
                                "piece": {"packets": 12, "mtu": 1500}})
        self.assertGreater(cost["seconds"], 0)
        measured = {name for name in cost if cost[name] is not None} - {"warned"}
        self.assertIn(len(measured), (1, 2, 4), cost)  # too short; no count of interrupts; all
        if "cores_per_rank" in measured:
            self.assertAlmostEqual(cost["cores_per_rank"],
                                   cost["interrupts_s"] / cost["seconds"] / 2)
        self.assertEqual((run["machine"]["nodes"], run["machine"]["ranks_on_this_node"]), (2, 1))
        self.assertEqual(run["machine"]["oversubscribed"],
                         len(os.sched_getaffinity(0)) < 2)
        # Over the network every byte takes its time; a way around it through memory takes none. Short
        # of the bytes that full buckets let pass at once (twice 1% of a second's worth is ample).
        wire = sum(int(r["wire_bytes"]) for r in rows if r["rank"] == "0")
        wall = sum(float(r["wall_s"]) for r in rows if r["rank"] == "0")
        self.assertGreater(wire, 20 * 4 * 256 * 256)
        self.assertGreater(wall * RATE / 8, wire - 0.02 * RATE / 8)

    @needs_launcher
    def test_ledger_over_the_link(self):
        """The identities between hosts. Their clocks are compared by messages but are in truth one
        clock, so a delay that comes back shows how good the comparison is."""
        self.up()
        skew = 5e-3
        self.train(2, "--comm", "allreduce:algo=sra", "--steps", "60", "--collectives", "--overhead",
                   "0", "--inject-skew", f"1:{skew}")
        out = self.path("run")
        identities.leaves(self, out, True)
        identities.gaps(self, out)
        identities.waits(self, out)
        identities.traffic(self, out)
        identities.collectives(self, out, 2)
        one, other = identities.by_rank(gwrun.batches(out))
        errors = [float(row["clock_err_s"]) for row in one]
        self.assertGreater(min(errors), 1e-6)  # half a round trip of TCP is no shorter
        waits = [identities.seconds(row, "wait_skew") for row in one[10:]]
        before = [sum(identities.seconds(late, n) - identities.seconds(row, n)
                      for n in ("t_start", "data", "forward", "backward"))
                  for row, late in zip(one[10:], other[10:])]
        # The clocks' error counts twice, once in the begins of the batches. What is posted before
        # the other arrives, hundreds of KB into TCP, is no waiting.
        post = [identities.seconds(row, "mpi_post") for row in one[10:]]
        off = statistics.median(max(w - max(b, 0), b - p - w) for w, b, p in zip(waits, before, post))
        room = statistics.median(identities.between(row) + identities.between(late)
                                 for row, late in zip(one[10:], other[10:]))
        self.assertLessEqual(off, 2 * max(errors) + room)

    @needs_launcher
    def test_slow_host(self):
        """A host that gets a fifth of a core: nothing on it runs faster than that, its ranks are on it,
        and their run tells. Whom the others wait for depends on what else the machine does; that a rank
        which is late is named, test_delays shows."""
        done = self.call("up", "--slow", "1:0.2")
        if done.returncode != 0:  # this machine's root may not limit processor time
            gwrun.refusal(done, "--slow")
            self.assertEqual(self.spaces(), [])
            return
        took = float(self.must("exec", "1", "--", sys.executable, "-c", BUSY))
        self.assertGreater(took * 0.2, BUSY_S / 2)  # a quota is granted for a period at a time
        placed = self.must("run", *MPIEXEC, "-n", "4", "--", "cat", "/proc/self/cgroup")
        self.assertEqual(placed.count(f"/gw-{self.name}-1"), 2, placed)  # not what it starts elsewhere
        run, _ = self.train(2)
        self.assertIn("1", json.loads(self.must("status", "--json"))["held_s"])
        self.assertEqual(run["link"]["slow_hosts"], "1:0.2")

    @needs_launcher
    def test_auto_measures_the_link(self):
        """What steps are predicted with is no faster than the line."""
        self.up()
        run, _ = self.train(2, "--compress", "auto:codecs=(none;fp16),algos=(sra;native),budget=2")
        forecast = run["forecast"]
        self.assertEqual((forecast["nodes"], forecast["ranks"], forecast["memory"]), (2, 2, None))
        # Full buckets let some pass at once.
        self.assertLess(forecast["links"]["bytes_per_s"], 1.25 * RATE / 8)
        for c in forecast["candidates"]:
            self.assertEqual(c["exchange"] is None, c["algorithm"] == "sra")
            point = (c["exchange"] or [{"bytes": 0}])[-1]
            if c["codec"] == "none" and point["bytes"] >= 1 << 17:  # a busy machine has no time for it
                self.assertGreater(point["time_s"] * RATE / 8, point["bytes"] - (1 << 16))

    @needs_launcher
    def test_hosts_share_the_cores(self):
        cores = len(os.sched_getaffinity(0))
        self.up(2)
        run, _ = self.train(2, "--threads", str(cores))
        self.assertTrue(run["machine"]["oversubscribed"])
        placed = self.must("run", *MPIEXEC, "-n", "4", "--per-host", "2", "--", "ip", "-o", "-4", "address",
                           "show", "eth0")
        self.assertEqual(placed.count("10.77.0.1/"), 2, placed)
        self.assertEqual(placed.count("10.77.0.2/"), 2, placed)

    def test_exec_and_status(self):
        self.assertEqual(self.call("status").returncode, 1)
        self.up(3)
        self.assertIn("10.77.0.3/24", self.must("exec", "3", "--", "ip", "-o", "address"))
        gwrun.refusal(self.call("exec", "4", "--", "ip", "link"), "1 to 3")
        status = json.loads(self.must("status", "--json"))
        self.assertEqual([(link["sends"]["rate_bits_per_s"], link["receives"]["rate_bits_per_s"])
                          for link in status["links"]], 3 * [(RATE, RATE)])

    def link_settings(self, host):
        """Segments of a piece, MTU, and the connection's own queue, as the kernel tells."""
        link, = json.loads(self.must("exec", str(host), "--", "ip", "-j", "-d", "link", "show", "eth0"))
        queue, = self.must("exec", str(host), "--", "cat",
                           "/proc/sys/net/ipv4/tcp_limit_output_bytes").split()
        return link["gso_max_segs"], link["mtu"], int(queue)

    def test_shaping(self):
        """Each host's own rates; buckets of less than 30% of 64 KiB, that a piece fits into."""
        for rate, more, rates, segments in (
                ("50mbit/200mbit,100mbit,1gbit", (), [(50, 200), (100, 100), (1000, 1000)], 4),
                ("1gbit", ("--mtu", "9000"), 3 * [(1000, 1000)], 1),
                ("200mbit", ("--offload", "off"), 3 * [(200, 200)], 1),
                ("200mbit", ("--offload", "5"), 3 * [(200, 200)], 5)):
            with self.subTest(rate=rate, more=more):
                self.must("up", "--hosts", "3", "--rate", rate, *more)
                links = json.loads(self.must("status", "--json"))["links"]
                self.assertEqual([(link["sends"]["rate_bits_per_s"] / 1e6,
                                   link["receives"]["rate_bits_per_s"] / 1e6) for link in links], rates)
                mtu = 9000 if "9000" in more else 1500
                for link in links:
                    got, got_mtu, queue = self.link_settings(link["host"])
                    self.assertEqual((got, got_mtu), (segments, mtu))
                    piece = segments * (mtu + 14)
                    self.assertTrue(2 * piece <= queue <= 0.1 * RATE, queue)
                    bucket = link["sends"]["bucket_bytes"]
                    self.assertTrue(piece < bucket <= 0.3 * (64 << 10) * 1514 / 1448, bucket)
                    self.assertTrue(bucket <= link["receives"]["bucket_bytes"] + 1
                                    <= bucket + piece + 16, links)
                self.must("down")

    def test_never_faster(self):
        """One connection brings over no more bytes than the rate and a bucket allow."""
        self.up(2)
        for ways in (("1", "2"), ("2", "1")):
            sink = subprocess.Popen([sys.executable, TESTBED, "exec", "--name", self.name, ways[1], "--",
                                     sys.executable, "-c", SINK], env=self.env, text=True,
                                    stdout=subprocess.PIPE)
            self.assertEqual(sink.stdout.readline(), "ready\n")
            seconds = float(self.must("exec", ways[0], "--", sys.executable, "-c", SOURCE,
                                      f"10.77.0.{ways[1]}"))
            sink.communicate(timeout=gwrun.HANG_S)
            self.assertGreater(seconds * RATE / 8, (2 << 20) - 40000)

    def racks(self, uplink="50mbit"):
        self.must("up", "--hosts", "4", "--rate", "200mbit", "--racks", "2", "--uplink", uplink)

    def sent(self, device):
        """Bytes that the switch has sent by a device, as the kernel tells."""
        queue, = json.loads(gwrun.said("tc", "-s", "-j", "-n", f"gw-{self.name}-switch", "qdisc", "show", "dev", device))
        return queue["bytes"]

    def transfers(self, *ways):
        """Of 2 MiB each, at once; the seconds of the fastest."""
        sinks = [subprocess.Popen([sys.executable, TESTBED, "exec", "--name", self.name, to, "--", sys.executable,
                                   "-c", SINK], env=self.env, text=True, stdout=subprocess.PIPE) for _, to in ways]
        for sink in sinks:
            self.assertEqual(sink.stdout.readline(), "ready\n")
        sources = [subprocess.Popen([sys.executable, TESTBED, "exec", "--name", self.name, one, "--", sys.executable,
                                     "-c", SOURCE, f"10.77.0.{to}"], env=self.env, text=True,
                                    stdout=subprocess.PIPE) for one, to in ways]
        seconds = [float(source.communicate(timeout=gwrun.HANG_S)[0]) for source in sources]
        for sink in sinks:
            sink.communicate(timeout=gwrun.HANG_S)
        return min(seconds)

    def test_racks(self):
        """Hosts of a rack share its uplink, and do without it among each other."""
        self.racks()
        self.assertIn("in 2 racks with uplinks of 50 Mbit/s", self.must("status"))
        gwrun.refusal(self.call("up", "--hosts", "4", "--rate", "200mbit"), "2 racks", "down")
        self.assertEqual(outside(), self.before)
        status = json.loads(self.must("status", "--json"))
        self.assertEqual([(one["rack"], one["hosts"], one["sends"]["rate_bits_per_s"], one["receives"]["rate_bits_per_s"])
                          for one in status["uplinks"]], [(1, [1, 2], 50e6, 50e6), (2, [3, 4], 50e6, 50e6)])
        self.assertEqual({link["sends"]["rate_bits_per_s"] for link in status["links"]}, {RATE})
        for ways, devices in (((("1", "2"), ("4", "3")), ()), ((("1", "3"), ("2", "4")), ("up1", "down2")),
                              ((("3", "2"), ("4", "1")), ("up2", "down1"))):
            before = {device: self.sent(device) for device in ("up1", "down1", "up2", "down2")}
            seconds = self.transfers(*ways)
            for device, was in before.items():
                got = self.sent(device) - was
                if device in devices:
                    self.assertGreater(got, len(ways) * (2 << 20), (ways, device))
                else:  # acknowledgements of the other way
                    self.assertLess(got, 1 << 20, (ways, device))
            self.assertGreater(seconds * (50e6 if devices else RATE) / 8, (2 << 20) - 40000, ways)

    @needs_launcher
    def test_bytes_over_the_uplink(self):
        """What the analysis makes of the matrix is what the uplinks carried, less headers."""
        self.racks()
        before = self.sent("up1"), self.sent("up2")
        run, _ = self.train(4, "--comm", "allreduce:algo=sra")
        over = racks.uplink_bytes(self.path("run"), run) * 4 * 20
        carried = self.sent("up1") + self.sent("up2") - sum(before)
        self.assertEqual(run["link"]["racks"], {"count": 2, "uplink_bits_per_s": 50000000, "ranks_per_host": 1})
        self.assertGreater(over, 20 * 4 * 256 * 256 * 3.9)  # 4 n
        self.assertTrue(over < carried < 1.3 * over + (1 << 20), (over, carried))

    @needs_launcher
    def test_ranks_of_racks(self):
        """Where the analysis thinks that ranks are."""
        self.racks()
        for ranks, each in ((4, 1), (6, 1), (4, 2), (9, 2)):
            said = self.must("run", *MPIEXEC, "-n", str(ranks), "--per-host", str(each), "--", "sh", "-c",
                             'echo "${PMI_RANK:-$OMPI_COMM_WORLD_RANK} $GRADWIRE_RACKS" $(ip -o -4 address show eth0)')
            lines = [line.split() for line in said.splitlines()]
            self.assertEqual({line[1] for line in lines}, {f"2x50000000x{each}"})
            host = {int(line[0]): int(re.search(r"10\.77\.0\.(\d+)/", " ".join(line))[1]) for line in lines}
            info = {"link": {"hosts": 4, "racks": {"count": 2, "ranks_per_host": each}},
                    "machine": {"ranks": ranks, "nodes": len(set(host.values()))}}
            self.assertEqual(racks.of_ranks(info), [(host[rank] - 1) // 2 for rank in range(ranks)])

    @needs_launcher
    def test_exit_status_of_a_refused_run(self):
        self.up()
        done = self.call("run", *MPIEXEC, "--", gwrun.GRADWIRE, "train", "--steps", "none")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("gradwire:"), 1, done.stderr)

    @needs_launcher
    def test_a_link_that_goes_down(self):
        """The launcher does not hear that the ranks have ended; a signal reaches it while they run."""
        self.up()
        gate = self.path("gate")
        words = [sys.executable, TESTBED, "run", "--name", self.name, *MPIEXEC, "-n", "2", "--", "sh", "-c",
                 f"echo up; while [ ! -e {gate} ]; do sleep 0.1; done"]
        for down in (False, True):
            job = subprocess.Popen(words, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual([job.stdout.readline() for _ in range(2)], ["up\n"] * 2)
            if down:
                gwrun.said("ip", "-n", f"gw-{self.name}-switch", "link", "set", "port2", "down")
                time.sleep(3)  # ranks that have been seen are missed sooner
                gwrun.write(gate, "")
            else:
                job.send_signal(signal.SIGTERM)
            _, said = job.communicate(timeout=gwrun.HANG_S)
            self.assertEqual("testbed: run: no rank is left" in said, down, said)
        self.assertEqual(job.returncode, 1)

    def test_delay(self):
        """Either this kernel has netem, or one line says that it does not, and nothing remains."""
        done = self.call("up", "--delay", "5ms")
        if done.returncode != 0:
            gwrun.refusal(done, "netem")
            self.assertEqual(self.spaces(), [])
            return
        self.must("exec", "1", "--", "ping", "-c", "1", "10.77.0.2")

    def test_killed_half_way(self):
        """Killed at any moment, `down` finds all; what still runs on a host, it ends. The first to be there is
        that of the probe."""
        before = spaces_of_all()
        for calls in range(1, 9):  # of ip and tc
            tools = self.path(f"tools{calls}")
            os.mkdir(tools)
            for tool in ("ip", "tc"):
                path = os.path.join(tools, tool)
                gwrun.write(path, f"""#!/bin/sh
echo >>{tools}/calls
[ $(wc -l <{tools}/calls) -le {calls} ] || kill -9 $PPID
exec {shutil.which(tool)} "$@"
""")
                os.chmod(path, 0o700)
            job = subprocess.run([sys.executable, TESTBED, "up", "--name", self.name], check=False,
                                 env={**self.env, "PATH": f"{tools}:{self.env['PATH']}"}, stdout=subprocess.DEVNULL)
            self.assertEqual(job.returncode, -signal.SIGKILL)
            self.must("down")
            self.assertEqual(spaces_of_all(), before, calls)
        for spaces in (1, 9, 25):  # of 65
            job = subprocess.Popen([sys.executable, TESTBED, "up", "--name", self.name, "--hosts",
                                    "64"], env=self.env, stdout=subprocess.DEVNULL)
            while len(self.spaces()) < spaces:
                self.assertIsNone(job.poll())
            job.send_signal(signal.SIGKILL)
            job.wait()
            gwrun.refusal(self.call("run", *MPIEXEC, "--", "true"), "not up")
            self.must("down")
            self.assertEqual(self.spaces(), [])
        self.up()
        job = subprocess.Popen([sys.executable, TESTBED, "exec", "--name", self.name, "2", "--",
                                "sleep", "1000"], env=self.env)
        while self.must("status").count(" 1 processes") != 1:
            self.assertIsNone(job.poll())
        os.unlink(self.path(f"gradwire-testbed-{self.name}", "state.json"))
        self.must("down")
        self.assertEqual(job.wait(timeout=gwrun.HANG_S), -signal.SIGTERM)
