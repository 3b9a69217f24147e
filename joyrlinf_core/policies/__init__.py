"""Policies. One file or package a model family; its name is `actor.model.model_type`."""
