"""ManiSkill: its tasks and robots; the simulator itself comes with a later version."""
