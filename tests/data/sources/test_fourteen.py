"""The fourteen columns of labels, in the spellings that tables use."""

from __future__ import annotations

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.data.source_tables import STANDARD_LABEL_NAMES, known_labels, label_vector, merge_labels

BLANK = dict.fromkeys(CHEXPERT_14, "")


def test_blank_is_unknown_and_never_negative() -> None:
    row = {**BLANK, "Edema": "1.0", "Fracture": "0.0", "Pneumonia": "-1.0"}
    assert known_labels(label_vector(row, "t.csv:2")) == {"Edema": 1, "Pneumonia": -1, "Fracture": 0}


def test_other_spellings_of_numbers_are_read_too() -> None:
    row = {**BLANK, "Edema": "1", "Fracture": "0.00", "Pneumonia": "-1", "Cardiomegaly": "nan"}
    assert known_labels(label_vector(row, "t.csv:2")) == {"Edema": 1, "Pneumonia": -1, "Fracture": 0}


def test_a_cell_that_is_no_label_is_named() -> None:
    with pytest.raises(DataError, match=r"t\.csv:2: 'Edema' is '2'; a label is 1, 0, -1 or empty"):
        label_vector({**BLANK, "Edema": "2"}, "t.csv:2")


def test_a_table_may_leave_out_no_finding_and_name_airspace_opacity() -> None:
    """The labels by radiologists of MIMIC-CXR 2.1.0 are such a table."""
    header = [STANDARD_LABEL_NAMES.get(name, name) for name in ("study_id", "Airspace Opacity", "Edema")]
    assert header == ["study_id", "Lung Opacity", "Edema"]
    assert known_labels(label_vector(dict(zip(header, ["5", "1.0", ""], strict=True)), "t.csv:2")) == {
        "Lung Opacity": 1
    }


def test_of_two_rows_the_stronger_label_counts() -> None:
    """1 beats -1 beats 0, and anything beats a blank, in either order."""
    first = label_vector({**BLANK, "Edema": "1", "Fracture": "-1", "Pneumonia": "0"}, "a")
    second = label_vector({**BLANK, "Edema": "0", "Fracture": "0", "Cardiomegaly": "1"}, "b")
    wanted = {"Edema": 1, "Fracture": -1, "Pneumonia": 0, "Cardiomegaly": 1}
    assert known_labels(merge_labels(first, second)) == known_labels(merge_labels(second, first)) == wanted
