"""Records, vocabulary, interfaces, files, configs, runs and errors that all packages share; no torch."""
