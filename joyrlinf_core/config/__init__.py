"""Config: schema, YAML loading with line numbers, overrides, presets.

Imports neither torch nor a simulator.
"""
