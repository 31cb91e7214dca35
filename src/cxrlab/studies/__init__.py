"""Several rooms in one experiment; the first is the tour, the whole chain on phantoms."""
