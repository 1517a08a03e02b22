"""Which example stands at which position of an endless training stream, and its random numbers.

Both are pure functions of the seed and the position. Batches, hosts, worker processes and resumed
runs are therefore only different ways to cut the same stream, and going to the ten-millionth
position costs no more than going to the first.
"""

import functools

import numpy as np
from jaxtyping import Float64, Int

# Uniform numbers per position. Philox makes four at a time, hence a multiple of four.
DRAWS = 28
_ORDER, _DRAWS = 0, 1


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, length: int, epoch: int) -> np.ndarray:
    bits = np.random.Philox(np.random.SeedSequence([seed, _ORDER, epoch]))
    permutation = np.random.Generator(bits).permutation(length)
    permutation.setflags(write=False)
    return permutation


def shuffled(seed: int, length: int, start: int, stop: int) -> Int[np.ndarray, " positions"]:
    """The examples at positions `start` to `stop` of the stream.

    Position p lies in epoch p // length, and every epoch is a permutation of its own.

    Args:
        seed: not negative.
        length: examples in the source, at least one.
        start: first position.
        stop: the position after the last one.

    Returns:
        Indices in [0, length).

    Example:
        >>> sorted(shuffled(0, 5, 10, 15).tolist())
        [0, 1, 2, 3, 4]
    """
    parts = [
        _permutation(seed, length, epoch)[
            max(0, start - epoch * length) : min(length, stop - epoch * length)
        ]
        for epoch in range(start // length, (stop - 1) // length + 1)
    ]
    return np.concatenate(parts)


def next_in_epoch(length: int, position: int, ahead: int) -> int:
    """The position `ahead` places after another, wrapping at the end of that position's epoch.

    Args:
        length: examples in the source.
        position: where to start.
        ahead: how many places to go.

    Returns:
        A position of the same epoch.

    Example:
        >>> next_in_epoch(length=5, position=13, ahead=2)
        10
    """
    epoch, place = divmod(position, length)
    return epoch * length + (place + ahead) % length


def uniforms(seed: int, start: int, stop: int) -> Float64[np.ndarray, "positions draws"]:
    """The random numbers that belong to positions `start` to `stop`.

    Args:
        seed: not negative.
        start: first position.
        stop: the position after the last one.

    Returns:
        `DRAWS` uniform numbers in [0, 1) per position.

    Example:
        >>> bool(np.array_equal(uniforms(0, 0, 9)[7:9], uniforms(0, 7, 9)))
        True
    """
    key = np.random.SeedSequence([seed, _DRAWS]).generate_state(2, np.uint64)
    bits = np.random.Philox(key=key, counter=start * (DRAWS // 4))
    return np.random.Generator(bits).random((stop - start, DRAWS))
