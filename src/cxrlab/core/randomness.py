"""Named random generators from one seed.

`generator(7, "phantom", "p000012", "noise")` always gives the same stream, whatever was drawn before it and in whichever
process: adding a draw to one part never shifts another part.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream_key(seed: int, *names: str | int) -> int:
    """A 128-bit integer that depends on the seed and on every name, in order."""
    text = "\x1f".join([str(int(seed)), *(str(name) for name in names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """An independent generator for this seed and these names."""
    return np.random.Generator(np.random.PCG64(stream_key(seed, *names)))


def uniform(seed: int, *names: str | int) -> float:
    """A uniform number in [0, 1) for these names, without building a generator."""
    # The top 53 bits, all that a float holds: the whole key could round up to 1.
    return (stream_key(seed, *names) >> 75) / 2.0**53
