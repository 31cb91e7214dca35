"""Models, attacks and films in; how reports and confidence change, with intervals, out."""
