"""How each observation shows on an image: which way, how strongly at least, and who draws it.

`contrast` is the mean change of image density (0 to 1) inside the mask that a finding has at the
very least on a standard exposure. Drawings that fall short are strengthened until they reach it, so
what is in the truth can be seen; findings marked possible are drawn at `anatomy.FAINT` of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.data.phantom import body, devices, lung, pleura
from cxrlab.data.phantom.frame import Patch
from cxrlab.data.phantom.thorax import Thorax

Draw = Callable[[Thorax, Finding, np.random.Generator], Patch]


@dataclass(frozen=True)
class Appearance:
    """One row: `sign` +1 whitens and -1 darkens the image; `draw` is None for findings that reshape the chest."""

    contrast: float
    draw: Draw | None = None
    sign: int = 1


APPEARANCE: MappingProxyType[str, Appearance] = MappingProxyType(
    {
        "lung opacity": Appearance(0.12, lung.opacity),
        "consolidation": Appearance(0.18, lung.consolidation),
        "pneumonia": Appearance(0.11, lung.pneumonia),
        "atelectasis": Appearance(0.11, lung.atelectasis),
        "edema": Appearance(0.09, lung.edema),
        "nodule": Appearance(0.12, lung.nodule),
        "mass": Appearance(0.18, lung.mass),
        "cavity": Appearance(0.15, lung.cavity),
        "granuloma": Appearance(0.25, lung.granuloma),
        "emphysema": Appearance(0.05, None, -1),
        "interstitial pattern": Appearance(0.08, lung.interstitial),
        "low lung volumes": Appearance(0.08, None),
        "pleural effusion": Appearance(0.20, pleura.effusion),
        "pneumothorax": Appearance(0.10, pleura.pneumothorax, -1),
        "pleural thickening": Appearance(0.13, pleura.thickening),
        "pleural plaque": Appearance(0.13, pleura.plaque),
        "cardiomegaly": Appearance(0.10, None),
        "enlarged cardiomediastinum": Appearance(0.10, None),
        "hilar enlargement": Appearance(0.12, body.hilum),
        "tortuous aorta": Appearance(0.06, None),
        "aortic calcification": Appearance(0.12, body.aortic_calcification),
        "hiatal hernia": Appearance(0.10, body.hernia, -1),
        "elevated hemidiaphragm": Appearance(0.12, None),
        "pneumoperitoneum": Appearance(0.16, body.free_air, -1),
        "rib fracture": Appearance(0.09, body.rib_fracture),
        "clavicle fracture": Appearance(0.09, body.clavicle_fracture),
        "scoliosis": Appearance(0.04, None),
        "subcutaneous emphysema": Appearance(0.08, body.chest_wall_air, -1),
        "endotracheal tube": Appearance(0.10, devices.endotracheal),
        "enteric tube": Appearance(0.11, devices.enteric),
        "central venous catheter": Appearance(0.12, devices.central_line),
        "chest tube": Appearance(0.12, devices.chest_tube),
        "pacemaker": Appearance(0.20, devices.pacemaker),
        "sternal wires": Appearance(0.14, devices.sternal_wires),
    }
)
