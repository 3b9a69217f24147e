"""One file a command. Heavy imports stay inside the functions."""
