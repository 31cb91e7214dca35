"""The language of reports: plausible cases from a seed, and findings put into words."""
