"""OpenVLA-OFT: two vision towers and Llama 2 that predict a chunk of action tokens in one pass."""

from joyrlinf_core.policies.openvla_oft.config import OpenVlaOftConfig

Config = OpenVlaOftConfig

__all__ = ["Config", "OpenVlaOftConfig"]
