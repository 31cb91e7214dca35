"""Preference training: `sample` candidate reports, `judge` them, `pair` them, and `train` on the pairs."""
