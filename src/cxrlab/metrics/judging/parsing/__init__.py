"""Strict readers of what a judge answers; none of them guesses, and none takes a report's own words for an answer."""
