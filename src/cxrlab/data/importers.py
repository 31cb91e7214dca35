"""The data sets that can be imported: one row each, loaded when asked for.

A row leads to `plan(config) -> Plan` (see `data/sources/source.py`); the docstring of its module says
what the data set is, what may be done with it and how to obtain it.
"""

from __future__ import annotations

from cxrlab.core.tables import Table

IMPORTERS = Table(
    "data set to import",
    {
        "nih-cxr14": "cxrlab.data.sources.nih_cxr14:plan",
        "cifar100": "cxrlab.data.sources.cifar100:plan",
        "image-folder": "cxrlab.data.sources.image_folder:plan",
    },
)
