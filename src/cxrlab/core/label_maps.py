"""What the labels of public data sets mean in the vocabulary; the rows are in label_maps.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cxrlab.core import record_fields as fields
from cxrlab.core.errors import VocabularyError, did_you_mean
from cxrlab.core.files import read_json
from cxrlab.core.record_fields import Record
from cxrlab.core.vocabulary import OBSERVATIONS, chexpert_label, observation


@dataclass(frozen=True)
class LabelMapping(Record):
    """The meaning of one label of a data set."""

    what = "a label mapping"
    checks = {
        "observations": fields.list_of(fields.one_of(*OBSERVATIONS)),
        "chexpert": fields.parsed_by(chexpert_label),
        "note": fields.text,
    }

    # Names of the vocabulary, at least one of which is present; empty when none fits
    observations: tuple[str, ...] = ()
    # A CheXpert observation that the label itself states, where it is wider than the observations
    chexpert: str | None = None
    # Why nothing fits, or a caveat. A label without a counterpart keeps its row with the reason, so that an
    # importer can distinguish it from a label that it has never seen.
    note: str = ""

    @property
    def label(self) -> str | None:
        """The CheXpert observation that the label makes positive; None unless every alternative agrees on it."""
        if self.chexpert is not None:
            return self.chexpert
        labels = {observation(name).chexpert for name in self.observations}
        return labels.pop() if len(labels) == 1 else None


LABEL_MAPS: Mapping[str, Mapping[str, LabelMapping]] = MappingProxyType(
    {
        corpus: MappingProxyType({label: LabelMapping.from_json(row) for label, row in rows.items()})
        for corpus, rows in read_json(Path(__file__).with_suffix(".json")).items()
    }
)
NIH_CXR14, PADCHEST, VINDR_CXR = (LABEL_MAPS[name] for name in ("nih-cxr14", "padchest", "vindr-cxr"))


def map_label(corpus: str, label: str) -> LabelMapping:
    """What `label` of `corpus` means; an unknown corpus or label is a `VocabularyError` with the nearest."""
    if corpus not in LABEL_MAPS:
        names = ", ".join(LABEL_MAPS)
        raise VocabularyError(
            f"there is no label map for '{corpus}'.{did_you_mean(corpus, LABEL_MAPS)} Known: {names}."
        )
    rows = LABEL_MAPS[corpus]
    if label not in rows:
        raise VocabularyError(
            f"'{label}' has no row in the label map of {corpus}.{did_you_mean(label, rows)} "
            "Add one to cxrlab/core/label_maps.json, with the reason if nothing fits."
        )
    return rows[label]
