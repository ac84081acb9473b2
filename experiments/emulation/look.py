"""status."""

import json

from emulation.build import text_of
from emulation.groups import held_s
from emulation.shaping import links, uplinks
from emulation.system import LINK, folder_of, load, namespaces, processes


def status(options):
    state = load(options.name)
    if not state:
        left = ", ".join(namespaces(options.name))
        print("null" if options.json else f"testbed: {options.name} is not up"
              + (f", but these are left of it: {left}" if left else ""))
        return 1
    found, between = links(state), uplinks(state)
    held = {host: held_s(options.name, host) for host in state.get("slow", {})}
    if options.json:
        print(json.dumps({**state, "interface": LINK, "links": found, "uplinks": between,
                          "held_s": held}, indent=2))
        return 0
    print(f"testbed: {options.name} is up: {text_of(state)}; {len(processes(options.name))} "
          f"processes; state in {folder_of(options.name)}")
    for link in found + between:
        sides = (f"{way} {link[way]['rate_bits_per_s'] / 1e6:g} Mbit/s (bucket "
                 f"{link[way]['bucket_bytes']} bytes)" for way in ("sends", "receives"))
        whose = f"rack {link['rack']}  hosts {link['hosts'][0]} to {link['hosts'][-1]}" if "rack" in link else \
            f"host {link['host']}  {link['address']:<11}"
        print(f"  {whose}  {'  '.join(sides)}")
    for host, seconds in held.items():
        print(f"  host {host}  has {state['slow'][host]:.0%} of a core, and was held up for "
              f"{seconds:.1f} s so far")
    return 0
