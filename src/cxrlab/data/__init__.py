"""Corpora of studies: import, draw, split, check, rewrite, compose, export and de-identify."""
