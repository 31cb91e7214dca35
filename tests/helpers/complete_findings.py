"""Complete findings for tests: every rendered observation with all its attributes."""

from __future__ import annotations

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import OBSERVATIONS, Certainty, Severity, Side

SIZES_MM = {
    "nodule": (8.0, 16.0, 29.0),
    "mass": (31.0, 48.0, 70.0),
    "cavity": (25.0, 40.0, 60.0),
    "granuloma": (5.0, 7.0, 10.0),
}
GRADES = (Severity.MILD, Severity.MODERATE, Severity.SEVERE)
ZONES = ("upper zone", "mid zone", "lower zone")


def complete(name: str, turn: int = 0, certainty: Certainty = Certainty.CERTAIN) -> Finding:
    """The `turn`-th complete description of an observation; turns go through grades, sides and places."""
    row = OBSERVATIONS[name]
    side = (Side.LEFT, Side.RIGHT, Side.BILATERAL)[turn % 3]
    if name in ("pacemaker", "central venous catheter", "rib fracture") and side is Side.BILATERAL:
        side = Side.LEFT
    place = next((zone for zone in (ZONES[turn % 3],) if zone in row.locations), None)
    if name == "rib fracture":
        place = f"rib {3 + turn % 7}"
    return Finding(
        name,
        certainty=certainty,
        side=side if row.sided else None,
        location=place,
        severity=GRADES[turn % 3] if row.graded else None,
        size_mm=SIZES_MM[name][turn % 3] if row.measured else None,
        tip=row.tips[turn % len(row.tips)] if row.tips else None,
        tip_mm=40.0 if name == "endotracheal tube" and turn % len(row.tips) == 0 else None,
    )
