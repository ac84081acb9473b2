"""Rates, segmentation offload and other quantities as text: argparse's types."""

import argparse
import re


def quantity(units, low, high, example):
    def convert(text):
        found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([a-z]*)", text.lower(), re.ASCII)
        value = round(float(found[1]) * units[found[2]]) if found and found[2] in units else -1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}': must be {example}")
        return value
    return convert


BITS = quantity({"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}, 1e6, 1e11, "1mbit to 100gbit, e.g. 1gbit")
RACKS = quantity({"": 1}, 1, 64, "1 to 64")


def rates_of(text):
    """[(up, down)] of each host, or one pair for all."""
    pairs = []
    for word in text.split(","):
        up, slash, down = word.partition("/")
        pairs.append((BITS(up), BITS(down if slash else up)))
    return pairs


def racks_fault(hosts, racks, uplink):
    """(the option, what is wrong with it) of so many racks; None: nothing."""
    if racks > hosts or hosts % racks:
        return "racks", f"{racks} racks cannot share {hosts} hosts evenly; give a divisor of {hosts}"
    if racks > 1 and not uplink:
        return "racks", f"{racks} racks need the rate of their uplinks; give uplink, e.g. 200mbit"
    if racks == 1 and uplink:
        return "uplink", "a single rack has none; give racks, 2 or more"
    return None


def offload_of(text):
    """"on", "off", or the most segments of a piece."""
    if text in ("on", "off"):
        return text
    if not re.fullmatch(r"\d{1,2}", text, re.ASCII) or not 1 <= int(text) <= 44:
        raise argparse.ArgumentTypeError(f"'{text}': must be on, off, or the segments of a piece, "
                                         "1 to 44")
    return int(text)
