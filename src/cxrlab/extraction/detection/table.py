"""The detectors by name; each row is a class that takes `DetectorSettings`."""

from __future__ import annotations

from cxrlab.core.tables import Table

DETECTORS = Table(
    "detector",
    {
        "prada": "cxrlab.extraction.detection.prada:Prada",
        "mmd": "cxrlab.extraction.detection.mmd:Mmd",
        "coverage": "cxrlab.extraction.detection.coverage:Coverage",
        "chest-gate": "cxrlab.extraction.detection.chest_gate:ChestGate",
        "perturbation": "cxrlab.extraction.detection.perturbation:Perturbation",
    },
)
