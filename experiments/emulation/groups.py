"""Slow hosts, by control groups."""

import contextlib
import os
import re
import time

from emulation.system import Failed, space_of
from tool import BadInput

# Period of a slow host's share: short, so that steps of milliseconds are slowed evenly, but ten
# times the kernel's least quota of 1 ms.
QUOTA_PERIOD_US = 10000
MOUNTED = "/sys/fs/cgroup"


def controller():
    """(mount point, options of version 1 or None for version 2) of the CPU controller; None: the
    system has none."""
    with open("/proc/mounts", encoding="utf-8") as file:
        mounts = [line.split() for line in file]
    for _, path, kind, options, *_ in mounts:
        if kind == "cgroup" and "cpu" in options.split(","):
            return path, ",".join(word for word in options.split(",") if word.startswith("cpu"))
    for _, path, kind, *_ in mounts:
        if kind == "cgroup2":
            with contextlib.suppress(OSError), open(f"{path}/cgroup.controllers",
                                                    encoding="utf-8") as file:
                if "cpu" in file.read().split():
                    return path, None
    return None


def own_group():
    """The group of this process, relative to the mount point."""
    first = controller()[1]
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    return next(path for _, kinds, path in lines
                if ("cpu" in kinds.split(",") if first else not kinds))


def join_command(group):
    """Shell words that join a group; `ip netns exec` mounts a /sys without control groups."""
    options = controller()[1]
    kind = f"cgroup -o {options}" if options else "cgroup2"
    return (f"mount -t {kind} none {MOUNTED} && echo \\$\\$ >{MOUNTED}{group}/cgroup.procs "
            "|| exit 1;")


def group_of(name, host):
    return os.path.join(controller()[0], space_of(name, host))


def groups(name):
    """Those of this testbed that exist."""
    found = controller()
    mine = re.compile(rf"gw-{re.escape(name)}-\d+")
    return sorted(os.path.join(found[0], word) for word in os.listdir(found[0])
                  if mine.fullmatch(word)) if found else []


def put(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def slow_down(name, host, fraction):
    found = controller()
    if not found:
        raise BadInput("--slow: this system has no control group for processor time: omit it")
    path, first = found
    quota = round(fraction * QUOTA_PERIOD_US)
    try:
        if not first:
            put(f"{path}/cgroup.subtree_control", "+cpu")
        os.mkdir(group_of(name, host))
        if first:
            put(f"{group_of(name, host)}/cpu.cfs_period_us", str(QUOTA_PERIOD_US))
            put(f"{group_of(name, host)}/cpu.cfs_quota_us", str(quota))
        else:
            put(f"{group_of(name, host)}/cpu.max", f"{quota} {QUOTA_PERIOD_US}")
    except OSError as error:
        raise BadInput(f"--slow: {path}: {error.strerror}: this system's root may not limit "
                      "processor time: omit it") from error


def held_s(name, host):
    """Seconds that all its processes together waited for their next share."""
    with open(f"{group_of(name, host)}/cpu.stat", encoding="utf-8") as file:
        words = dict(line.split() for line in file)
    return (int(words["throttled_usec"]) / 1e6 if "throttled_usec" in words
            else int(words["throttled_time"]) / 1e9)


def remove_groups(name):
    """Removes the groups; their last processes may take a moment to end."""
    for group in groups(name):
        for _ in range(100):
            try:
                os.rmdir(group)
                break
            except OSError as error:
                last = error
                time.sleep(0.02)
        else:
            raise Failed(f"{group}: {last.strerror}: cannot be removed")
