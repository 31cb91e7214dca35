"""Generate reports with a model, score them against references, compare runs, and validate metrics."""
