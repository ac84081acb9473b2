"""up and down."""

import contextlib
import json
import os
import signal
import time

from emulation.groups import join_command, remove_groups, slow_down
from emulation.shaping import segments_of, settings, shape, shape_uplink
from emulation.system import (Failed, LINK, address_of, folder_of, load, locked, namespaces, processes,
                              rack_of, rate_text, slow_text, space_of, system, write)
from tool import BadInput


def text_of(state):
    text = f"{state['hosts']} hosts at {rate_text(state)}"
    if state["racks"] > 1:
        text += f" in {state['racks']} racks with uplinks of {state['uplink_bits_per_s'] / 1e6:g} Mbit/s"
    text += (f", offload {state['offload']}" if state["offload"] != "on" else "")
    text += (f", MTU {state['mtu']}" if state["mtu"] != 1500 else "")
    text += f", {state['delay_us']} us one way" if state["delay_us"] else ""
    return text + (f", slow: {slow_text(state)}" if slow_text(state) else "")


def settle(space, settings=()):
    """Makes the settings of a new namespace equal on all machines, and applies `settings`."""
    script = ("".join(f"echo {value} >/proc/sys/net/ipv4/{name}; "
                      for name, value in dict(settings).items()) +
              "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null; "
              "echo cubic >/proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null || "
              "echo reno >/proc/sys/net/ipv4/tcp_congestion_control")
    system("ip", "netns", "exec", space, "sh", "-c", script)
    system("ip", "-n", space, "link", "set", "lo", "up")


def add_bridge(switch, bridge, state):
    system("ip", "-n", switch, "link", "add", bridge, "type", "bridge")
    system("ip", "-n", switch, "link", "set", bridge, "mtu", str(state["mtu"]), "up")


def add_racks(switch, state):
    """A bridge a rack and, between several, a core with a pair of interfaces to each: up and down."""
    racks = range(1, state["racks"] + 1)
    for rack in racks:
        add_bridge(switch, f"rack{rack}", state)
    if len(racks) == 1:
        return
    add_bridge(switch, "core", state)
    for rack in racks:
        up, down = f"up{rack}", f"down{rack}"
        system("ip", "-n", switch, "link", "add", up, "type", "veth", "peer", "name", down)
        shape_uplink(switch, up, down, state)
        for device, bridge in ((up, f"rack{rack}"), (down, "core")):
            system("ip", "-n", switch, "link", "set", device, "master", bridge, "up")


def build(name, state):
    switch = space_of(name, "switch")
    system("ip", "netns", "add", switch)
    settle(switch)
    probe = ("tc", "-n", switch, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us")
    if state["delay_us"] and system(*probe, check=False).returncode != 0:
        raise BadInput("--delay: this kernel has no netem, so it cannot delay packets: omit it")
    add_racks(switch, state)
    for host, (sends, receives) in enumerate(state["rates"], 1):
        space, port = space_of(name, host), f"port{host}"
        system("ip", "netns", "add", space)
        settle(space, settings(sends, state))
        system("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", LINK,
               "netns", space)
        shape(space, LINK, sends, state)
        shape(switch, port, receives, state)
        system("ip", "-n", switch, "link", "set", port, "master", f"rack{rack_of(state, host)}", "up")
        system("ip", "-n", space, "address", "add", f"{address_of(host)}/24", "dev", LINK)
        system("ip", "-n", space, "link", "set", LINK, "up")
    for host, fraction in state["slow"].items():
        slow_down(name, host, fraction)


def write_state(name, state):
    """Writes the host file, and the launchers' replacement of ssh: LAUNCHER [-OPTION] ADDRESS WORD..."""
    folder = folder_of(name)
    write(folder, "hosts", "".join(address_of(h) + "\n" for h in range(1, state["hosts"] + 1)))
    joins = {host: join_command("/" + space_of(name, host)) for host in state["slow"]}
    if "1" in joins:  # processes that mpiexec starts there would inherit its group
        joins["*"] = join_command("${GRADWIRE_TESTBED_GROUP%/}")
    cases = "".join(f'{host}) join="{join}" ;;\n' for host, join in joins.items())
    write(folder, "launcher", f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=${{1##*.}}
shift
join=
case $host in
{cases}esac
exec ip netns exec {space_of(name, '"$host"')} sh -c "$join $*"
""", 0o700)
    write(folder, "state.json", json.dumps(state, indent=2) + "\n")  # last: now it is complete


def probe(name):
    """BadInput if root may not build a testbed, as in a container or chroot. What a killed probe leaves is
    the testbed's by its name."""
    space = space_of(name, "probe")
    inside = ("ip", "-n", space, "link", "add")
    system("ip", "netns", "del", space, check=False)
    try:
        system("ip", "netns", "add", space)
        system("ip", "netns", "exec", space, "true")
        system(*inside, "bridge", "type", "bridge")
        system(*inside, "port", "type", "veth", "peer", "name", LINK)
        system("tc", "-n", space, "qdisc", "add", "dev", LINK, "root", "tbf", "rate", "1mbit",
               "burst", "10k", "limit", "10k")
    except Failed as error:
        raise BadInput(f"this system's root may not build it ({error}): use a whole machine, or a "
                      "privileged container") from error
    finally:
        system("ip", "netns", "del", space, check=False)


def up(options):
    name = options.name
    slow = {str(host): fraction for host, fraction in sorted(options.slow)}
    for host, _ in options.slow:
        if host not in range(1, options.hosts + 1):
            raise BadInput(f"--slow: host {host}: the hosts are 1 to {options.hosts}")
    if len(slow) < len(options.slow):
        raise BadInput("--slow: a host is named twice")
    rates = [list(pair) for pair in options.rate * (options.hosts // len(options.rate))]
    state = {"name": name, "hosts": options.hosts, "rate_bits_per_s": min(map(min, rates)),
             "rates": rates, "racks": options.racks, "uplink_bits_per_s": options.uplink,
             "mtu": options.mtu, "offload": options.offload,
             "segments": segments_of(rates + [[options.uplink] * 2] * bool(options.uplink), options.mtu,
                                     options.offload),
             "delay_us": options.delay, "slow": slow}
    with locked(folder_of(name)):
        old = load(name)
        if old == state:
            print(f"testbed: {name} is up already: {text_of(state)}")
            return 0
        if old:
            raise BadInput(f"{name} is up with {text_of(old)}: `testbed down` first, or --name "
                          "another")
        try:
            probe(name)
        except BaseException:
            with contextlib.suppress(OSError):  # something of a killed `up` is there
                os.rmdir(folder_of(name))
            raise
        remove(name)
        try:
            build(name, state)
            write_state(name, state)
        except BaseException:
            remove(name)
            os.rmdir(folder_of(name))
            raise
    print(f"testbed: {name} is up: {text_of(state)}; {state['hosts']} hosts share "
          f"{len(os.sched_getaffinity(0))} CPUs")
    return 0


def end_processes(name):
    """Ends the processes in its namespaces; kills them after 2 s."""
    for attempt in range(200):
        pids = processes(name)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if attempt < 40 else signal.SIGKILL)
        time.sleep(0.05)
    raise Failed(f"{name}: processes {sorted(pids)} do not end")


def remove(name):
    """Removes everything but the folder itself."""
    end_processes(name)
    found = namespaces(name)
    for space in found:
        system("ip", "netns", "del", space)
    remove_groups(name)
    for file in os.listdir(folder_of(name)):
        os.unlink(os.path.join(folder_of(name), file))
    return found


def down(options):
    with locked(folder_of(options.name)):
        found = remove(options.name)
        os.rmdir(folder_of(options.name))
    print(f"testbed: {options.name} is {'down' if found else 'not up: nothing to remove'}")
    return 0
