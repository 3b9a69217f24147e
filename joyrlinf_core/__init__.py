"""Core of joyrl: config, plan, simulators, policies, algorithms and the training engine."""
