"""Losses: one file each, exporting `compute(inputs, config)`."""
