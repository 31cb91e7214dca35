"""Records, vocabulary, protocols, tables, files, configs, runs and errors that all packages share; no torch."""
