"""Generate reports, score them, compare runs, explain them, and measure metrics against radiologists."""
