from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from tables import every_row

from cxrlab.core.errors import VocabularyError
from cxrlab.core.label_maps import LABEL_MAPS, LabelMapping, map_label
from cxrlab.core.vocabulary import CHEXPERT_14, OBSERVATIONS

ROWS = [(corpus, label, row) for corpus, rows in LABEL_MAPS.items() for label, row in rows.items()]


@every_row(("corpus", "label", "row"), ROWS)
def test_every_target_is_in_the_vocabulary_and_every_gap_has_a_reason(
    corpus: str, label: str, row: LabelMapping
) -> None:
    assert set(row.observations) <= set(OBSERVATIONS)
    assert row.chexpert is None or row.chexpert in CHEXPERT_14
    assert row.observations or row.chexpert or row.note


def test_each_corpus_has_the_number_of_labels_it_was_published_with() -> None:
    counts = {corpus: len(rows) for corpus, rows in LABEL_MAPS.items()}
    assert counts["chexpert"] == counts["brax"] == 14
    assert counts["mimic-cxr"] == 15, "the fourteen and the second name of lung opacity"
    assert counts["vindr-cxr"] == 28
    assert counts["nih-cxr14"] == 15, "fourteen and No Finding"
    assert counts["padchest"] == 193, "174 findings and 19 diagnoses, normal and the like among them"


def test_chexpert_labels_map_to_themselves() -> None:
    assert all(map_label("chexpert", name).label == name for name in CHEXPERT_14)
    assert map_label("mimic-cxr", "Airspace Opacity").label == "Lung Opacity"


def test_alternatives_agree_on_a_label_or_give_none() -> None:
    """A nodule or a mass is a lung lesion either way; fluid or scar is not the same label."""
    assert map_label("vindr-cxr", "Nodule/Mass").label == "Lung Lesion"
    assert map_label("padchest", "costophrenic angle blunting").label is None
    assert map_label("padchest", "kyphosis").label is None


def test_unknown_names_are_met_with_the_nearest() -> None:
    with pytest.raises(VocabularyError, match="Did you mean 'padchest'"):
        map_label("padchst", "normal")
    with pytest.raises(VocabularyError, match="Did you mean 'Effusion'"):
        map_label("nih-cxr14", "effusions")


@pytest.mark.real_data
def test_every_label_of_the_real_nih_table_is_known(real_data: Path) -> None:
    with gzip.open(real_data / "nih_cxr14" / "Data_Entry_2017_v2020.csv.gz", "rt", newline="") as file:
        found = {label for row in csv.DictReader(file) for label in row["Finding Labels"].split("|")}
    assert found == set(LABEL_MAPS["nih-cxr14"])
