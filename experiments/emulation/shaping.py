"""What makes a link of a pair of interfaces: token buckets, queues, segmentation offload.

A bucket lets its bytes pass at once after a rest, so it bounds how exact a short message is: of a
transfer of S bytes, S - bucket are shaped. A larger piece costs less processor time, since each
piece is a timer's event, but has to fit into the bucket; what it leaves free there is the slack for
timers that fire late, and what a timer is later than that is rate lost for good. Hence the bucket is
as small as 64 KiB within 30% and 1 MiB within 2% ask for, the slack as large as timers are late, and
the piece takes the rest. The bucket of a host that receives no slower than others send is a piece
larger: what one sender's bucket let pass never waits there, so that it costs no second timer;
several senders' does.

A sender's own queue is short: the kernel bounds what a connection may have in it (TCP small queues),
by default according to the connection's rate. With one first-in-first-out bucket for all of them
whoever has the larger rate gets the larger share, and keeps it. So the bound is the same for all.
"""

import json

from emulation.system import Failed, LINK, address_of, space_of, system

HEADERS = 14, 52  # bytes of Ethernet's, and of IP's and TCP's, in a packet
BUCKET = 20000  # bytes: 30% of 64 KiB with its headers
BUCKET_S = 100e-6  # of the rate, if that is more: beyond 1.6 Gbit/s
PIECE_S = 1e-3  # that a piece takes at most, unless two packets do: what TCP itself aims at
LATE_S = 35e-6  # what timers are late where the cores compute; rarely more
QUEUE_S = 0.05  # what a link queues before it drops
OWN_QUEUE_S = 0.65e-3  # of a connection, or two pieces: while one passes, the next one waits
LARGEST = 65536  # bytes of a piece that the kernel's interfaces take


def frame(mtu):
    return mtu + HEADERS[0]


def payload(mtu):
    return mtu - HEADERS[1]


def segments_of(rates, mtu, offload):
    """The packets that TCP may hand down in one piece on a testbed of these (up, down) rates."""
    if offload != "on":
        return min(1 if offload == "off" else offload, LARGEST // frame(mtu))
    slowest = min(map(min, rates))
    room = min(bucket_of(rate, 0) - rate / 8 * LATE_S for pair in rates for rate in pair)
    soon = max(2 * frame(mtu), slowest / 8 * PIECE_S)
    return max(1, int(min(room, soon, LARGEST) // frame(mtu)))


def bucket_of(rate, piece):
    """`piece`: bytes that have to fit in."""
    return round(max(BUCKET, rate / 8 * BUCKET_S, piece + rate / 8 * LATE_S))


def shape(space, device, rate, state):
    piece = state["segments"] * frame(state["mtu"])
    sends = device == LINK
    delay_us = 0 if sends else state["delay_us"]
    slack = 0 if sends or rate < max(up for up, _ in state["rates"]) else piece
    bucket = bucket_of(rate, piece) + slack
    queue = max(round(rate / 8 * (QUEUE_S + delay_us / 1e6)), 4 * piece)
    parent = ["root"]
    if delay_us:
        system("tc", "-n", space, "qdisc", "add", "dev", device, "root", "handle", "1:", "netem",
               "delay", f"{delay_us}us", "limit", str(queue // 64))
        parent = ["parent", "1:1"]
    system("tc", "-n", space, "qdisc", "add", "dev", device, *parent, "handle", "10:", "tbf",
           "rate", f"{rate}bit", "burst", str(bucket), "limit", str(queue))
    segments = str(state["segments"])
    system("ip", "-n", space, "link", "set", device, "mtu", str(state["mtu"]), "gso_max_segs",
           segments, "gso_max_size", str(min(LARGEST, max(piece, 2048))))


def settings(sends, state):
    """Of a host's namespace that sends at this rate: {name in /proc/sys/net/ipv4: value}"""
    piece = state["segments"] * frame(state["mtu"])
    return {"tcp_limit_output_bytes": max(round(2.2 * piece), round(sends / 8 * OWN_QUEUE_S)),
            "tcp_min_tso_segs": state["segments"]}  # or slow connections' pieces are smaller


def shaping(space, device):
    """As the kernel tells."""
    for qdisc in json.loads(system("tc", "-j", "-n", space, "qdisc", "show", "dev", device).stdout):
        if qdisc["kind"] == "tbf":
            return {"rate_bits_per_s": qdisc["options"]["rate"] * 8,
                    "bucket_bytes": qdisc["options"]["burst"]}
    raise Failed(f"{space}: {device} is not shaped: `testbed down`, then up again")


def line_rate(state, sender, receiver):
    """Of the way between two hosts."""
    return min(state["rates"][sender - 1][0], state["rates"][receiver - 1][1])


def links(state):
    name = state["name"]
    return [{"host": h, "namespace": space_of(name, h), "address": address_of(h),
             "sends": shaping(space_of(name, h), LINK),
             "receives": shaping(space_of(name, "switch"), f"port{h}")}
            for h in range(1, state["hosts"] + 1)]
