from __future__ import annotations

import pytest

from cxrlab.core.errors import VocabularyError
from cxrlab.core.vocabulary import (
    CHEXPERT_5,
    CHEXPERT_14,
    DRAWN,
    LOCATIONS,
    OBSERVATIONS,
    TIPS,
    Group,
    Severity,
    chexpert_label,
    observation,
)


def test_every_chexpert_observation_but_no_finding_has_a_row() -> None:
    """A label that nothing counts towards could never be positive."""
    covered = {row.chexpert for row in OBSERVATIONS.values()} - {None}
    assert covered == set(CHEXPERT_14) - {"No Finding"}


def test_the_drawn_ones_cover_chexpert_and_ten_more() -> None:
    """What the synthetic world promises: 13 observable labels and at least ten findings beyond them."""
    rows = [observation(name) for name in DRAWN]
    assert {row.chexpert for row in rows} - {None} == set(CHEXPERT_14) - {"No Finding"}
    assert sum(row.chexpert is None for row in rows) >= 10
    assert len(set(DRAWN)) == len(DRAWN)


def test_the_five_are_among_the_fourteen() -> None:
    assert len(CHEXPERT_14) == 14 and set(CHEXPERT_5) < set(CHEXPERT_14)


def test_every_location_of_a_row_is_a_location() -> None:
    for row in OBSERVATIONS.values():
        assert set(row.locations) <= set(LOCATIONS), row.name


def test_tips_belong_to_devices() -> None:
    for name in TIPS:
        assert observation(name).group is Group.DEVICE
    assert observation("edema").tips == ()


def test_severities_are_ordered() -> None:
    assert [severity.rank for severity in Severity] == [0, 1, 2, 3]
    assert Severity("severe").rank == 3


def test_unknown_words_name_the_nearest() -> None:
    with pytest.raises(VocabularyError, match="Did you mean 'pleural effusion'"):
        observation("plural effusion")
    with pytest.raises(VocabularyError, match="Did you mean 'Edema'"):
        chexpert_label("edema")
    assert chexpert_label("Edema") == "Edema"
