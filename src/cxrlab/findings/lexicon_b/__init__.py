"""Lexicon B: other words for the same things, held back for oracles and tests."""
