"""Values of a corpus's labels from read findings: present 1, absent 0, possible -1, not mentioned None."""

from __future__ import annotations

from collections.abc import Iterable

from cxrlab.core.label_maps import map_label
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, observation


def read_value(findings: Iterable[Finding], corpus: str, label: str) -> int | None:
    """The strongest statement about any observation that the label stands for."""
    row = map_label(corpus, label)
    values: set[int] = set()
    for finding in findings:
        towards = observation(finding.observation).chexpert
        meant = finding.observation in row.observations if row.observations else towards == row.chexpert is not None
        if meant:
            values.add(0 if not finding.present else 1 if finding.certainty is Certainty.CERTAIN else -1)
    return next((value for value in (1, -1, 0) if value in values), None)
