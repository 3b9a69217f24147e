"""Policy family OpenPI: Pi0 and Pi0.5 at any size.

`config.py`, `architecture.py`, `settings.py` and `layout.py` import no torch; `policy.py` is what
the engine drives, on top of `sampler.py` (denoise steps, log-probs), `model.py` (prefix,
expert) and `gemma.py` (transformer layers). `checkpoint.py` maps tensor names to the upstream ones.
"""

from joyrlinf_core.policies.openpi.config import OpenPiConfig

Config = OpenPiConfig

__all__ = ["Config", "OpenPiConfig"]
