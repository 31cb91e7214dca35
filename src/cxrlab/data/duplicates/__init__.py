"""Repeated and nearly repeated reports and films, found without comparing each with each."""
