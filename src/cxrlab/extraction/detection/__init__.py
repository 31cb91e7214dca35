"""A stream of questions in; whether somebody is copying the model out, with a stated rate of false alarms."""
