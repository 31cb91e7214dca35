"""HTML pages from run folders: one self-contained file that needs no network and no script.

Only files are read, no models or corpora. To add a section: one row in `page.SECTIONS`, its function, its template.
"""
