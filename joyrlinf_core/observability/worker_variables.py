"""Environment variables through which the launcher tells a worker about the launch.

They carry no setting of the training; a worker runs without them too. Standard library alone.
"""

LAUNCHER = "JOYRL_LAUNCHER"
"""`ProcessId` of the launcher, which a worker does not outlive."""

LAUNCHED_AT = "JOYRL_LAUNCHED_AT"
"""When torchrun was started, seconds since the epoch."""

LAUNCH_ID = "JOYRL_LAUNCH_ID"
"""Unique text that every process of the launch inherits, so that none can be left behind."""

PLAN = "JOYRL_PLAN"
"""File of the plan; without it, `plan.json` of the run directory. A resumed run's new plan becomes
`plan.json` only once the workers have loaded it."""

STORE = "JOYRL_STORE"
"""On one node: file through which the ranks meet, in place of a TCP port."""
