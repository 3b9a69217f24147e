"""Shows a run while it goes on; everything comes from events, drawn in the launcher's process."""
