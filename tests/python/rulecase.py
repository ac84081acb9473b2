"""Optimizers in numpy and doubles, and the gradients that test_rules.py has them and the library move by."""

import numpy as np

SHAPES = {"a.weight": (12, 5), "a.bias": (12,), "b.weight": (6, 12), "b.bias": (6,), "head.weight": (3, 6)}
HEAD = "head.weight"
STEPS = 100


def initial():
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}


def gradient(rank, step):
    """A rank's, of a step 0, 1, ..: a drift and noise."""
    rng, drift = np.random.default_rng([rank, step]), np.random.default_rng(3)
    return {name: drift.standard_normal(shape, np.float32) / 2 + rng.standard_normal(shape, np.float32)
            for name, shape in SHAPES.items()}


def mean(ranks, step):
    all_of_them = [gradient(rank, step) for rank in range(ranks)]
    return {name: sum(one[name].astype(float) for one in all_of_them) / ranks for name in SHAPES}


def sgd(p, g, s, lr, momentum=0, nesterov=0, decay=0):
    g = g + decay * p
    s["v"] = momentum * s.get("v", 0) + g
    return p - lr * (g + momentum * s["v"] if nesterov else s["v"])


def direction(p, g, s, beta1=0.9, beta2=0.999, eps=1e-8):
    s["t"] = s.get("t", 0) + 1
    s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * g
    s["r"] = beta2 * s.get("r", 0) + (1 - beta2) * g * g
    return s["m"] / (1 - beta1 ** s["t"]) / (np.sqrt(s["r"] / (1 - beta2 ** s["t"])) + eps)


def adamw(p, g, s, lr, decay=0.01, **how):
    return p - lr * (direction(p, g, s, **how) + decay * p)


def lamb(p, g, s, lr, decay=0.01, clip=10):
    r = direction(p, g, s, eps=1e-6) + decay * p
    return p - lr * min(np.linalg.norm(p), clip) / np.linalg.norm(r) * r


def lars(p, g, s, lr, momentum=0.9, decay=0, trust=0.001):
    by = 1
    if p.ndim > 1:
        size = np.linalg.norm(p)
        by = trust * size / (np.linalg.norm(g) + decay * size)
    s["v"] = momentum * s.get("v", 0) + by * (g + decay * p)
    return p - lr * s["v"]


def lion(p, g, s, lr, beta1=0.9, beta2=0.99, decay=0):
    m = s.get("m", np.zeros_like(p))
    s["m"] = beta2 * m + (1 - beta2) * g
    return p - lr * (np.sign(beta1 * m + (1 - beta1) * g) + decay * p)


def muon(p, g, s, lr, momentum=0.95, rest=0.015, head=False, decay=0):
    if p.ndim == 1 or head:
        return adamw(p, g, s, lr * rest, decay)
    s["v"] = momentum * s.get("v", 0) + g
    x = g + momentum * s["v"]
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return p - lr * (max(1, p.shape[0] / p.shape[1]) ** 0.5 * x + decay * p)


# Words of the library: rate, rule, its options.
RULES = {
    "sgd": (0.1, sgd, {}),
    "sgd:momentum=0.9": (0.1, sgd, {"momentum": 0.9}),
    "sgd --momentum 0.9 --weight-decay 0.01": (0.1, sgd, {"momentum": 0.9, "decay": 0.01}),
    "sgd:momentum=0.9,nesterov=1,weight-decay=0.01": (0.1, sgd, {"momentum": 0.9, "nesterov": 1, "decay": 0.01}),
    "adamw": (0.01, adamw, {}),
    "adamw:beta1=0.8,beta2=0.95,eps=1e-6 --weight-decay 0.1": (
        0.01, adamw, {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "decay": 0.1}),
    "lamb": (0.01, lamb, {}),
    "lamb:clip=3,weight-decay=0.1": (0.01, lamb, {"clip": 3, "decay": 0.1}),
    "lars": (0.5, lars, {}),
    "lars:trust=0.02,momentum=0.8,weight-decay=0.01": (0.5, lars, {"trust": 0.02, "momentum": 0.8, "decay": 0.01}),
    "lion": (0.01, lion, {}),
    "lion:beta1=0.8,beta2=0.95,weight-decay=0.1": (0.01, lion, {"beta1": 0.8, "beta2": 0.95, "decay": 0.1}),
    "muon": (0.02, muon, {}),
    "muon:momentum=0.8,rest=0.5,weight-decay=0.1": (0.02, muon, {"momentum": 0.8, "rest": 0.5, "decay": 0.1}),
}


def moved(words, ranks=1, clip=None, steps=STEPS):
    """Parameters after steps by the mean gradient, clipped as torch.nn.utils.clip_grad_norm_ does."""
    lr, rule, how = RULES[words]
    params, state = {name: p.astype(float) for name, p in initial().items()}, {name: {} for name in SHAPES}
    for step in range(steps):
        grads = mean(ranks, step)
        norm = np.sqrt(sum((g * g).sum() for g in grads.values()))
        by = min(1, clip / (norm + 1e-6)) if clip else 1
        for name, p in params.items():
            more = {**how, "head": True} if rule is muon and name == HEAD else how
            params[name] = rule(p, by * grads[name], state[name], lr, **more)
    return params
