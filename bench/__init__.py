"""Measure one configuration: one training loop, interchangeable backends, one run log."""
