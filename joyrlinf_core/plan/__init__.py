"""The plan: placement, batch arithmetic, rules. Pure Python."""
