"""Demonstrations on disk: the plain joyrl format, LeRobot data sets, training samples."""
