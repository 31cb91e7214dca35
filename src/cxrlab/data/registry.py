"""The data sets that can be imported: one row each, loaded when asked for.

A row leads to `plan(config) -> ImportPlan` (see `data/importing.py`); the docstring of its module says
what the data set is, what may be done with it and how to obtain it.
"""

from __future__ import annotations

from cxrlab.core.tables import Table

IMPORTERS = Table(
    "data set to import",
    {
        "mimic-cxr": "cxrlab.data.sources.mimic_cxr:plan",
        "chexpert": "cxrlab.data.sources.chexpert:plan",
        "brax": "cxrlab.data.sources.brax:plan",
        "candid-ptx": "cxrlab.data.sources.candid_ptx:plan",
        "vindr-cxr": "cxrlab.data.sources.vindr_cxr:plan",
        "object-cxr": "cxrlab.data.sources.object_cxr:plan",
        "padchest": "cxrlab.data.sources.padchest:plan",
        "nih-cxr14": "cxrlab.data.sources.nih_cxr14:plan",
        "iu-xray": "cxrlab.data.sources.iu_xray:plan",
        "openi": "cxrlab.data.sources.openi:plan",
        "cifar100": "cxrlab.data.sources.cifar100:plan",
        "image-folder": "cxrlab.data.sources.image_folder:plan",
    },
)


MAKERS = Table(
    "corpus maker",
    {
        "phantom": "cxrlab.data.phantom.corpus:make_phantom",
        "scenes": "cxrlab.data.scenes:make_scenes",
    },
)
