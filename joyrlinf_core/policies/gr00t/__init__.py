"""GR00T N1.5: a vision-language backbone and a diffusion-transformer action head."""

from joyrlinf_core.policies.gr00t.config import Gr00tConfig

Config = Gr00tConfig

__all__ = ["Config", "Gr00tConfig"]
