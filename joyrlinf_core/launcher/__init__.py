"""From plan to processes: run directory, torchrun, supervision."""
