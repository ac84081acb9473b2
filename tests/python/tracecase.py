"""trace.json, read back by rules of its own: one exact timeline per rank."""

import collections
import decimal
import json
import os

PHASES = ("other", "data", "forward", "backward", "recompute", "update", "encode", "decode",
          "mpi_post", "mpi_poll", "mpi_wait", "checkpoint")
COMPUTATION = ("forward", "backward", "recompute", "update")


def load(out, **how):
    with open(os.path.join(out, "trace.json"), encoding="utf-8") as file:
        return json.load(file, **how)


def ns(microseconds):
    value = decimal.Decimal(microseconds) * 1000
    assert value == int(value), microseconds
    return int(value)


class Timeline:
    """One rank's events, as exact integers."""

    def __init__(self, events):
        self.slices = collections.defaultdict(list)  # category -> (start, end, name, args)
        self.tracks = collections.defaultdict(list)  # thread -> (start, end)
        self.pairs = []
        self.counters = collections.defaultdict(list)
        began, now = {}, 0
        for event in events:
            at = ns(event["ts"])
            assert at >= now, event
            now = at
            if event["ph"] == "X":
                end = at + ns(event["dur"])
                assert end >= at, event
                self.slices[event["cat"]].append((at, end, event["name"], event.get("args")))
                self.tracks[event["tid"]].append((at, end))
            elif event["ph"] == "b":
                assert event["id"] not in began, event
                began[event["id"]] = event
            elif event["ph"] == "e":
                first = began.pop(event["id"])
                assert first["name"] == event["name"]
                self.pairs.append((ns(first["ts"]), at, first["args"]))
            else:
                assert event["ph"] == "C", event
                (unit, value), = event["args"].items()
                self.counters[event["name"], unit].append((at, value))
        assert not began, began

    def nested(self):
        """Whether no two slices of a thread overlap in part."""
        for slices in self.tracks.values():
            for i, (_, end) in enumerate(slices):
                for other, until in slices[i + 1:]:
                    if other >= end:
                        break
                    if until > end:
                        return False
        return True

    def sums(self):
        """step -> phase -> ns, with wall, inflight and the number of slices; they fill the batch."""
        sums, phases = {}, self.slices["phase"]
        at = 0
        outer = sorted(self.slices["batch"] + self.slices["between"])
        for start, end, _, args in outer:
            of = collections.Counter(wall=end - start, slices=0, inflight=0)
            reach = start
            # A phase may be too short for its digits, and so lie on the batch's end with both of its.
            while at < len(phases) and (phases[at][0] < end or phases[at][1] == end):
                first, last, name, _ = phases[at]
                assert first == reach and name in PHASES, phases[at]
                reach = last
                of[name] += last - first
                of["slices"] += 1
                if name in COMPUTATION:
                    of["inflight"] += sum(max(0, min(last, stop) - max(first, go))
                                          for go, stop, _, _ in self.slices["requests"])
                at += 1
            assert reach == end, (start, end, reach)
            if args:
                sums[args["step"]] = of
        assert at == len(phases)
        return sums


def timelines(trace):
    """pid -> Timeline; names are checked on the way."""
    events, named = collections.defaultdict(list), {}
    for event in trace["traceEvents"]:
        if event["ph"] != "M":
            assert event["pid"] in named and event["tid"] in named[event["pid"]], event
            events[event["pid"]].append(event)
        elif event["name"] == "process_name":
            assert event["args"]["name"] == f"rank {event['pid']}"
            named[event["pid"]] = {}
        elif event["name"] == "thread_name":
            named[event["pid"]][event["tid"]] = event["args"]["name"]
    assert sorted(named) == list(range(len(named)))
    return {pid: Timeline(of) for pid, of in events.items()}
