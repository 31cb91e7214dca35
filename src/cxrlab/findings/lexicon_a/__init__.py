"""Lexicon A: the words of the training corpus."""
