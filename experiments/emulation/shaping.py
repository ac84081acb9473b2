"""The links: token buckets, queues, segmentation offload.

After a rest a bucket lets its bytes pass at once, which limits the accuracy of short messages: of a
transfer of S bytes, S - bucket are shaped. Each piece costs a timer event, so larger pieces cost
less CPU time, but a piece has to fit into the bucket. The rest of the bucket is the slack for late
timers; a timer later than that loses rate for good. Therefore the bucket is as small as an error of
30% at 64 KiB and of 2% at 1 MiB demands, the slack as large as timers are late, and the piece takes
the rest. If a host receives no slower than others send, its bucket is one piece larger: what one
sender's bucket let pass never waits there and costs no second timer, only that of several senders
does. The same holds of an uplink that is no slower than its senders, and of the way down from one,
which is as fast as the way up to it.

A sender's own queue is short: the kernel limits a connection's bytes in it (TCP small queues), by
default in proportion to the connection's rate. In one first-in-first-out bucket the connection with
the larger rate would get, and keep, the larger share. So the limit is the same for all.
"""

import json

from emulation.system import Failed, LINK, address_of, rack_of, space_of, system

HEADERS = 14, 52  # bytes in a packet: Ethernet; IP and TCP
BUCKET = 20000  # bytes: 30% of 64 KiB with its headers
BUCKET_S = 100e-6  # of the rate, if that is more: beyond 1.6 Gbit/s
PIECE_S = 1e-3  # the longest time of a piece, unless two packets take longer: TCP's own aim
LATE_S = 35e-6  # delay of timers while the cores compute; rarely more
QUEUE_S = 0.05  # queue of a link before it drops packets
OWN_QUEUE_S = 0.65e-3  # of a connection, or two pieces: one passes, the next one waits
LARGEST = 65536  # bytes of a piece that the kernel's interfaces accept


def frame(mtu):
    return mtu + HEADERS[0]


def payload(mtu):
    return mtu - HEADERS[1]


def segments_of(rates, mtu, offload):
    """The packets in one of TCP's pieces on a testbed of these (up, down) rates."""
    if offload != "on":
        return min(1 if offload == "off" else offload, LARGEST // frame(mtu))
    slowest = min(map(min, rates))
    room = min(bucket_of(rate, 0) - rate / 8 * LATE_S for pair in rates for rate in pair)
    soon = max(2 * frame(mtu), slowest / 8 * PIECE_S)
    return max(1, int(min(room, soon, LARGEST) // frame(mtu)))


def bucket_of(rate, piece):
    """Bytes of a bucket that `piece` bytes fit into."""
    return round(max(BUCKET, rate / 8 * BUCKET_S, piece + rate / 8 * LATE_S))


def shape(space, device, rate, state):
    """A host's end of its link, which is LINK, or the switch's."""
    sends = device == LINK
    limit(space, device, rate, state, not sends and rate >= fastest(state), 0 if sends else state["delay_us"])


def shape_uplink(space, up, down, state):
    rate = state["uplink_bits_per_s"]
    limit(space, up, rate, state, rate >= fastest(state))
    limit(space, down, rate, state, True)


def fastest(state):
    """The rate at which a host sends, at most."""
    return max(up for up, _ in state["rates"])


def limit(space, device, rate, state, larger, delay_us=0):
    """Limits what leaves by `device`; larger: its bucket takes one piece more."""
    piece = state["segments"] * frame(state["mtu"])
    bucket = bucket_of(rate, piece) + (piece if larger else 0)
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
    """{name in /proc/sys/net/ipv4: value} of a host that sends at this rate."""
    piece = state["segments"] * frame(state["mtu"])
    return {"tcp_limit_output_bytes": max(round(2.2 * piece), round(sends / 8 * OWN_QUEUE_S)),
            "tcp_min_tso_segs": state["segments"]}  # else slow connections have smaller pieces


def shaping(space, device):
    """The rate and bucket of a device, as the kernel reports them."""
    for qdisc in json.loads(system("tc", "-j", "-n", space, "qdisc", "show", "dev", device).stdout):
        if qdisc["kind"] == "tbf":
            return {"rate_bits_per_s": qdisc["options"]["rate"] * 8,
                    "bucket_bytes": qdisc["options"]["burst"]}
    raise Failed(f"{space}: {device} is not shaped: `testbed down`, then up again")


def line_rate(state, sender, receiver):
    """Bit/s from one host to another."""
    rate = min(state["rates"][sender - 1][0], state["rates"][receiver - 1][1])
    same = rack_of(state, sender) == rack_of(state, receiver)
    return rate if same else min(rate, state["uplink_bits_per_s"])


def links(state):
    name = state["name"]
    return [{"host": h, "namespace": space_of(name, h), "address": address_of(h),
             "sends": shaping(space_of(name, h), LINK),
             "receives": shaping(space_of(name, "switch"), f"port{h}")}
            for h in range(1, state["hosts"] + 1)]


def uplinks(state):
    """Of each rack, where there are several."""
    switch, racks = space_of(state["name"], "switch"), range(1, state["racks"] + 1)
    return [{"rack": rack, "hosts": [h for h in range(1, state["hosts"] + 1) if rack_of(state, h) == rack],
             "sends": shaping(switch, f"up{rack}"), "receives": shaping(switch, f"down{rack}")}
            for rack in racks if len(racks) > 1]
