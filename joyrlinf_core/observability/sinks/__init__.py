"""Metric sinks beside the event file."""
