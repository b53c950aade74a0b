"""Measurements; none asserts a time."""
