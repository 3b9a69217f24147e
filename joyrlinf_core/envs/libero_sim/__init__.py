"""LIBERO: its tasks; the simulator itself comes with a later version."""
