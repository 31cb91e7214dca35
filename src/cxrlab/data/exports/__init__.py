"""A corpus written out in the layout of a public data set, so that what was built for that one can be tried on it."""
