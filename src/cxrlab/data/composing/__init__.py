"""One corpus out of several: members are filtered, drawn from, merged, counted and written."""
