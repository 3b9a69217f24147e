"""Advantage estimators: one file each, exporting `compute(batch, context)`."""
