"""Metrics of generated reports against references, with direction, range and signature."""
