"""The command line: argv in, one call, an exit code out."""
