"""Structuring: a report as four clean sections about this film alone, by rules or by a language model."""
