"""torch.profiler windows and named ranges."""
