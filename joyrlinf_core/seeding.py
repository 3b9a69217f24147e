"""Named random streams: every random draw of a run is a pure function of (seed, names).

No generator is carried along, so a resumed run, a run on another number of ranks and a re-ordered
loop all draw the same numbers. Imports the standard library alone.
"""

from __future__ import annotations

import hashlib


def stream(seed: int, *names: int | str) -> int:
    """Return the seed of one named stream.

    Args:
        seed: Seed of the run.
        names: What the stream is for, for example `("rollout", step, epoch, chunk)`.

    Returns:
        An integer in [0, 2**63), as `torch.Generator.manual_seed` and `numpy.random.default_rng`
        accept it.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
