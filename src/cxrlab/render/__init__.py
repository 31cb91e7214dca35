"""HTML pages from run folders: one self-contained file that needs no network and no script.

Only files are read, no models or corpora. To add a section: a function, a template, a row of `page.SECTIONS`, and a
shape for a new result file.
"""
