"""Detection of extraction attacks in streams of queries, with a bounded rate of false alarms."""
