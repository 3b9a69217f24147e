"""Simulators. One file a simulator; its name is `env.train.type`."""
