"""Whole experiments: one engine that runs a study of variants and seeds, a recipe per experiment, and the tour."""
