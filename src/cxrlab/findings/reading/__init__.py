"""How the reader reads: tables of phrases with a reason a row, and the few rules that put them together."""
