"""The shape contract: what a rollout holds and how it becomes a training batch (`layout.py`)."""
