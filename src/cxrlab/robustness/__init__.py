"""Models, attacks and images in; how reports and confidence change, with intervals, out."""
