"""The command line of experiments/testbed."""

import argparse
import re

from emulation.quantity import BITS, RACKS, offload_of, quantity, racks_fault, rates_of
from tool import BadInput, Parser, check_names


def slow_host(text):
    found = re.fullmatch(r"(\d{1,2}):(0?\.\d{1,3})", text)
    if not found or not 0.1 <= float(found[2]) <= 0.9:
        raise argparse.ArgumentTypeError(f"'{text}': must be HOST:FRACTION, with 0.1 to 0.9 of a "
                                         "core's time, e.g. 2:0.3")
    return int(found[1]), float(found[2])


def name_of(text):
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", text):
        raise argparse.ArgumentTypeError(f"'{text}': up to 32 letters, digits, '-' and '_'")
    return text


DELAY = quantity({"us": 1, "ms": 1000}, 0, 1e6, "0us to 1000ms, e.g. 50us")
HOSTS = quantity({"": 1}, 2, 64, "2 to 64")
COUNT = quantity({"": 1}, 1, 4096, "1 to 4096")
MTU = quantity({"": 1}, 1000, 9000, "1000 to 9000 bytes")


def parse(description):
    parser = Parser(description)
    parser.takes_command = True
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name, help_text):
        sub = verbs.add_parser(name, help=help_text)
        sub.takes_command = True
        sub.add_argument("--name", type=name_of, default="default",
                         help="which testbed, if several are up [default]")
        return sub

    up = verb("up", "build it; harmless if it is up already")
    up.add_argument("--hosts", type=HOSTS, default=2, metavar="N", help="2 to 64 [2]")
    up.add_argument("--rate", type=rates_of, default="1gbit", metavar="UP[/DOWN],..",
                    help="rate to send and receive at: one for all hosts, or one for each "
                         "in turn, e.g. 1gbit,100mbit or 50mbit/200mbit [1gbit]")
    up.add_argument("--racks", type=RACKS, default=1, metavar="R",
                    help="divide the hosts evenly: the first N/R are rack 1, and so on [1]")
    up.add_argument("--uplink", type=BITS, metavar="RATE",
                    help="each way, between a rack and the others: its hosts share it [none]")
    up.add_argument("--offload", type=offload_of, default="on", metavar="on|off|N",
                    help="segmentation offload: TCP hands down pieces of as many packets as the "
                         "rate allows, of one packet, or of N at most [on]")
    up.add_argument("--mtu", type=MTU, default=1500, metavar="BYTES",
                    help="of a packet, without Ethernet's header; jumbo frames: 9000 [1500]")
    up.add_argument("--delay", type=DELAY, default=0, metavar="TIME",
                    help="one way, e.g. 50us; needs a kernel with netem [none]")
    up.add_argument("--slow", type=slow_host, action="append", default=[], metavar="HOST:FRACTION",
                    help="share of a core that the host's processes get, e.g. 2:0.3; once per host")
    run = verb("run", "start MPI ranks on the hosts, round robin")
    run.add_argument("-n", type=COUNT, dest="ranks", metavar="RANKS", help="[one per host]")
    run.add_argument("--per-host", type=COUNT, default=1, metavar="K",
                     help="neighbouring ranks placed together [1]")
    run.add_argument("--mpiexec", help="a Hydra, or Open MPI's of an MPICH for PMIx "
                     "[build/release/mpiexec if built, else a Hydra in PATH]")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="[--] COMMAND")
    inside = verb("exec", "run one command on one host")
    inside.add_argument("host", type=COUNT, help="1 to N")
    inside.add_argument("command", nargs=argparse.REMAINDER, metavar="[--] COMMAND")
    status = verb("status", "print hosts, links and their shaping (status 1: nothing is up)")
    status.add_argument("--json", action="store_true", help="for programs")
    verb("check", "measure how exact the links are, and what they cost (status 1: not exact)")
    verb("down", "end the processes on the hosts and remove everything")
    options = parser.parse_args()
    check_names([getattr(options, "mpiexec", None) or ""])
    if options.verb in ("run", "exec"):
        options.command = options.command[options.command[:1] == ["--"]:]
        if not options.command:
            raise BadInput(f"{options.verb}: name a command to run")
    if options.verb == "up" and len(options.rate) not in (1, options.hosts):
        raise BadInput(f"--rate: {len(options.rate)} rates for {options.hosts} hosts: give one, or "
                      "one for each host")
    if options.verb == "up" and (wrong := racks_fault(options.hosts, options.racks, options.uplink)):
        raise BadInput(f"--{wrong[0]}: {wrong[1]}")
    return options
