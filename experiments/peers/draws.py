"""gradwire's random draws in numpy: the order of the samples and the initial weights of a seed, so that
PyTorch can start from the same model and visit the same batches. As src/base/rng.h defines them."""

import numpy as np

ORDER, WEIGHTS = 0x65706F63, 0x696E6974  # salts: src/data/sampler.c, src/nn/model.c


def mix(z):
    """SplitMix64's last steps, on an array of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bits(key, at):
    """64 uniform bits for each number of `at`; key and at: arrays of uint64."""
    return mix(mix(key) + (at + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


def derived(key, salt):
    return mix(bits(key, np.array([salt], np.uint64)) ^ np.uint64(0xD1B54A32D192ED03))


def order(seed, n):
    """Of n samples in the first epoch: Fisher and Yates' shuffle."""
    key = derived(derived(np.array([seed], np.uint64), ORDER), 0)
    at = np.arange(n, 1, -1, dtype=np.uint64)
    drawn, half = bits(key, at), np.uint64(32)
    low = (drawn & np.uint64(0xFFFFFFFF)) * at
    other = ((drawn >> half) * at + (low >> half)) >> half
    shuffled = list(range(n))
    for i, j in zip(range(n - 1, 0, -1), other.tolist()):
        shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
    return np.array(shuffled)


def weights(seed, layer, inputs, outputs):
    """W (inputs, outputs) of a layer that ReLU follows (He's initialisation); biases are 0."""
    key = derived(derived(np.array([seed], np.uint64), WEIGHTS), layer)
    at = 2 * np.arange(inputs * outputs, dtype=np.uint64)
    u, v = ((bits(key, at + np.uint64(i)) >> np.uint64(11)) * 2.0**-53 for i in (0, 1))
    normal = np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * np.pi * v)
    return (np.sqrt(2 / inputs) * normal).astype(np.float32).reshape(inputs, outputs)
