"""Repeated and nearly repeated reports and images, found without comparing each with each."""
