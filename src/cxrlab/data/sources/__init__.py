"""Importers of public data sets: one file per data set."""
