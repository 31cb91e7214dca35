"""Published checkpoints in the layouts of their makers, rewritten as folders that transformers loads.

A conversion is exact or refused: every tensor is placed, or its name stands in a list with the reason why it is
not needed; anything missing, left over or of another shape is named.
"""
