"""check: the accuracy and cost of the links."""

import contextlib
import ctypes
import os
import signal
import socket
import statistics
import threading
import time

from emulation.shaping import frame, line_rate, payload
from emulation.system import Failed, address_of, rack_of, space_of, standing

SHORT, LONG = 64 << 10, 1 << 20  # bytes of the transfers that are timed
WITHIN = {SHORT: 0.30, LONG: 0.02}  # of the line's time
BULK, SHARES = 0.02, 0.10
TURNS, WINDOW_S, PORT = 9, 2.0, 7077
CLONE_NEWNET = 0x40000000
TICK = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def inside(space):
    """Sockets that this thread opens meanwhile belong to that namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as own, open(f"/run/netns/{space}", "rb") as there:
        def enter(file):
            if libc.setns(file.fileno(), CLONE_NEWNET):
                raise Failed(f"check: {space}: {os.strerror(ctypes.get_errno())}")
        enter(there)
        try:
            yield
        finally:
            enter(own)


class Connection:
    """Between two hosts, with both ends here."""

    def __init__(self, name, sender, receiver):
        with inside(space_of(name, receiver)):
            server = socket.create_server((address_of(receiver), PORT))
        with server:
            with inside(space_of(name, sender)):
                self.source = socket.create_connection((address_of(receiver), PORT), timeout=10)
            self.sink, _ = server.accept()
        self.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.source.settimeout(None)

    def close(self):
        self.source.close()
        self.sink.close()


class Exchange(Connection):
    """Messages from one host to another, each answered by a byte."""

    def time(self, size):
        def answer():
            buffer, left = bytearray(min(size, 1 << 20)), size
            while left and (got := self.sink.recv_into(buffer, min(left, len(buffer)))):
                left -= got
            self.sink.sendall(b"k")
        data, other = bytes(size), threading.Thread(target=answer)
        other.start()
        time.sleep(0.002)  # the bucket fills: the worst case for a short message
        begin = time.perf_counter()
        self.source.sendall(data)
        self.source.recv(1)
        seconds = time.perf_counter() - begin
        other.join()
        return seconds

    def median(self, size, turns):
        self.time(size)  # warms up
        return statistics.median(self.time(size) for _ in range(turns))


class Flow(Connection):
    """An endless transfer, whose bytes are counted on arrival."""

    def __init__(self, name, sender, receiver):
        super().__init__(name, sender, receiver)
        self.bytes = 0
        self.threads = [threading.Thread(target=work) for work in (self.send, self.take)]
        for thread in self.threads:
            thread.start()

    def send(self):
        data = bytes(256 << 10)
        with contextlib.suppress(OSError):
            while True:
                self.source.sendall(data)

    def take(self):
        buffer = bytearray(1 << 20)
        with contextlib.suppress(OSError):
            while got := self.sink.recv_into(buffer):
                self.bytes += got

    def close(self):
        for end in (self.source, self.sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        super().close()


def kernel_s():
    """CPU time of all cores in interrupts (with softirqs), and in the rest of the kernel."""
    with open("/proc/stat", encoding="ascii") as file:
        _, _, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (irq + softirq) / TICK, system / TICK


def flows(state, pairs):
    """Bit/s on the wire of simultaneous endless transfers between these pairs of hosts, and the
    cores that they took."""
    running = [Flow(state["name"], *pair) for pair in pairs]
    try:
        time.sleep(WINDOW_S / 2)  # until the shares are stable
        before, bytes_before, begin = kernel_s(), [flow.bytes for flow in running], time.monotonic()
        time.sleep(WINDOW_S)
        seconds = time.monotonic() - begin
        taken = [flow.bytes - was for flow, was in zip(running, bytes_before)]
        cost = [(now - was) / seconds for now, was in zip(kernel_s(), before)]
    finally:
        for flow in running:
            flow.close()
    scale = 8 * frame(state["mtu"]) / payload(state["mtu"]) / seconds
    return [scale * count for count in taken], cost


@contextlib.contextmanager
def busy_cores():
    """Keeps all cores busy with programs of the lowest priority: most kernels sample CPU time at
    ticks, which an idle core lacks."""
    spinners = []
    try:
        for core in os.sched_getaffinity(0):
            pid = os.fork()
            if pid == 0:
                os.sched_setaffinity(0, {core})
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                while os.getppid() != 1:
                    sum(range(1000000))
                os._exit(0)
            spinners.append(pid)
        yield
    finally:
        for pid in spinners:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class Report:
    passed = True

    def line(self, what, got, off, within):
        good = abs(off) <= within
        self.passed &= good
        print(f"{'pass' if good else 'FAIL'}  {what:<40} {got}, {off:+.1%} (within {within:.0%})")

    def rate(self, what, value, line, within):
        self.line(what, f"{value / 1e6:8.1f} of {line / 1e6:g} Mbit/s", value / line - 1, within)


def sizes(state, report, to):
    """Compares with the line's time for these bytes. The machine's own latency, up to that of an
    empty message and its answer, does not count as an error."""
    exchange = Exchange(state["name"], 1, to)
    rest = exchange.median(1, 4 * TURNS)
    for size, within in WITHIN.items():
        line = 8 * size * frame(state["mtu"]) / payload(state["mtu"]) / line_rate(state, 1, to)
        turns = max(1, min(TURNS, int(WINDOW_S / line)))
        seconds = exchange.median(size, turns)
        report.line(f"{size >> 10} KiB from rest, host 1 to {to}",
                    f"{seconds * 1e3:8.3f} of {line * 1e3:.3f} ms",
                    (min(seconds, max(line, seconds - rest))) / line - 1, within)
    exchange.close()
    print(f"      {'1 byte and its answer':<40} {rest * 1e3:8.3f} ms, not held against the above")


def uplinks(state, report):
    """Each host of rack 1 sends to one of rack 2, and then the other way. Full queues of both ways delay and lose
    acknowledgements, as those of a router do: what both ways at once bring over is TCP's."""
    each = state["hosts"] // state["racks"]
    there = [(host, host + each) for host in range(1, each + 1)]
    back = [(to, host) for host, to in there]
    lines = [min(state["uplink_bits_per_s"], sum(line_rate(state, *pair) for pair in pairs)) for pairs in (there, back)]
    if each > 1:
        sizes(state, report, 1 + each)
    for what, pairs, line in (("1 to 2", there, lines[0]), ("2 to 1", back, lines[1])):
        report.rate(f"all hosts of rack {what}", sum(flows(state, pairs)[0]), line, BULK)
    both = sum(flows(state, there + back)[0])
    print(f"      {'both ways at once':<40} {both / 1e6:8.1f} of {sum(lines) / 1e6:g} Mbit/s, not held against "
          "the above")


def line_into(state, host):
    """Bit/s, at most, from all others to this one."""
    by_rack, mine = {}, rack_of(state, host)
    for other in range(1, state["hosts"] + 1):
        if other != host:
            rack = rack_of(state, other)
            by_rack[rack] = by_rack.get(rack, 0) + line_rate(state, other, host)
    near = by_rack.pop(mine, 0)
    far = [min(rate, state["uplink_bits_per_s"]) for rate in by_rack.values()]
    return min(state["rates"][host - 1][1], near + (min(sum(far), state["uplink_bits_per_s"]) if far else 0))


def check(options):
    state = standing(options.name)
    report = Report()
    sizes(state, report, 2)
    ways = [(1, 2), (2, 1)]
    with busy_cores():
        rates, (interrupts, kernel) = flows(state, ways)
    for rate, way in zip(rates, ways) if rack_of(state, 1) == rack_of(state, 2) else ():
        report.rate(f"both ways at once, host {way[0]} to {way[1]}", rate, line_rate(state, *way),
                    # one acknowledgement per piece uses the link, too
                    BULK + 66 / (state["segments"] * frame(state["mtu"])))
    print(f"      {'which took, while all cores computed,':<40} {interrupts:8.3f} of a core in "
          f"interrupts, {kernel:.3f} in the rest of the kernel")
    (one, other), _ = flows(state, 2 * [(1, 2)])
    if state["rates"][0][0] <= line_rate(state, 1, 2):  # else TCP determines their shares
        report.rate("one of two flows, host 1 to 2", one, (one + other) / 2, SHARES)
    report.rate("both of them", one + other, line_rate(state, 1, 2), BULK)
    if state["hosts"] > 2:
        senders = range(2, state["hosts"] + 1)
        rates, _ = flows(state, [(host, 1) for host in senders])
        report.rate(f"{len(senders)} senders to host 1", sum(rates), line_into(state, 1), BULK)
    if state["racks"] > 1:
        uplinks(state, report)
    return 0 if report.passed else 1
