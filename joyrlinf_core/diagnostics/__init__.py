"""Checks of this machine and of a config; functions that return findings."""
