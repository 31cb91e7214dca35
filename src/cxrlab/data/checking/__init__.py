"""Is a corpus fit for use, and what is in it? Defects, numbers, and the data card."""
