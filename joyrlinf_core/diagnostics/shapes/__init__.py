"""Parts of `shape_check`: sizes, script, synthetic rollouts, the run, its tensors, the checks."""
