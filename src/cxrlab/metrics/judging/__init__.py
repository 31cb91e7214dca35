"""Language models as judges of reports: what they are asked, how their answers are read, what is counted."""
