"""The corpora that can be made from a seed: one row each, loaded when asked for.

A maker is called with its config and the folder to write: `make(config, out) -> Corpus`.
"""

from __future__ import annotations

from cxrlab.core.tables import Table

MAKERS = Table(
    "corpus maker",
    {
        "phantom": "cxrlab.data.phantom.corpus:make_phantom",
        "scenes": "cxrlab.data.scenes:make_scenes",
    },
)
