"""Run folders in, one self-contained HTML file out.

Reads files alone, never models or corpora; what a page shows was written down by whoever ran.
The file asks the network for nothing and holds no script, so that it opens in a closed hospital network.
"""
