"""A rank of test_rules.py: rules_rank.py FILE WORDS.. writes on rank 0 what gradwire_update makes of the parameters,
for each of the WORDS; on the way it saves what the session carries, and goes on from it in another."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.environ["SOURCE"], "python"))

import numpy as np
from rulecase import RULES, SHAPES, STEPS, gradient, initial

import gradwire

HALF = STEPS // 2


def opened(words, params):
    session = gradwire.Session("--profile off --optimizer " + words)
    for name, p in params.items():  # all in one group, which tells of no layers
        session.tensor(name, p)
    return session.open()


def train(session, rank, rate, steps):
    for step in steps:
        grads = list(gradient(rank, step).values())
        with session.batch(1):
            session.ready(range(len(SHAPES)), grads)
            session.finish()
            if session.text("update") == "lazy":  # too early
                session.updated(0)
            session.update(rate)
            session.updated()


def main():
    rank, _ = gradwire.start("")
    found = {}
    for words in sys.argv[2:]:
        rate = RULES.get(words, RULES.get(words.split()[0], [0]))[0]
        params = initial()
        with opened(words, params) as session:
            train(session, rank, rate, range(HALF))
            session.settle()
            state = session.save()
        with opened(words, params) as session:
            session.load(state)
            train(session, rank, rate, range(HALF, STEPS))
            session.settle()
        found[words] = {name: p.astype(float).tolist() for name, p in params.items()}
    if rank == 0:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
