"""Several nodes: who is who, the meeting before a start, and what launchers tell each other."""
