"""Command line of joyrl: parses, calls one function of the core, renders. No logic lives here."""
