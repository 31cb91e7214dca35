"""Uncertainty of values: intervals, paired tests, agreement with raters, and corrections for many tests.

Everything is computed from the rows of counts in a `Tally`, by matrix products; no report is scored
again. Whatever belongs to one patient is drawn, or swapped, together.
"""
