"""Weights of the policy that learns, on their way to copies that act."""
