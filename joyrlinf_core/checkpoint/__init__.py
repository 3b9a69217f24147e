"""Atomic checkpoints with a manifest."""
