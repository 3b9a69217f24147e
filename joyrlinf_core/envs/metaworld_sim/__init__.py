"""Meta-World runtime behind `envs/metaworld.py`; only simulator processes import its modules."""
