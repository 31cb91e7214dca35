"""Views of MIMIC-CXR images, one case for each word of the source."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.vocabulary import View
from cxrlab.data.sources.mimic_cxr import VIEW_ELSEWHERE, VIEW_NOT_STATED, VIEW_UNKNOWN_WORD, view_of


@every_row(
    ("position", "view", "word"),
    [
        ("PA", View.PA, None),
        ("AP", View.AP, None),
        ("ap ", View.AP, None),
        ("LATERAL", View.LATERAL, "LATERAL"),
        ("LL", View.LATERAL, "LL"),
        ("XTABLE  LATERAL", View.LATERAL, "XTABLE LATERAL"),
        ("AP AXIAL", View.OTHER, "AP AXIAL"),
        ("AP LLD", View.OTHER, "AP LLD"),
        ("AP RLD", View.OTHER, "AP RLD"),
        ("PA LLD", View.OTHER, "PA LLD"),
        ("PA RLD", View.OTHER, "PA RLD"),
        ("LAO", View.OTHER, "LAO"),
        ("RAO", View.OTHER, "RAO"),
        ("LPO", View.OTHER, "LPO"),
        ("SWIMMERS", View.OTHER, "SWIMMERS"),
    ],
)
def test_every_word_of_the_source_is_known(position: str, view: View, word: str | None) -> None:
    assert view_of(position) == (view, word, None)


@pytest.mark.parametrize(
    ("code", "procedure", "view"),
    [
        ("postero-anterior", "", View.PA),
        ("antero-posterior", "CHEST (PA AND LAT)", View.AP),
        ("Left Lateral", "", View.LATERAL),
        ("", "CHEST (PORTABLE AP)", View.AP),
        ("", "PORTABLE AP CHEST", View.AP),
    ],
)
def test_a_blank_position_is_resolved_elsewhere(code: str, procedure: str, view: View) -> None:
    assert view_of("", code, procedure) == (view, None, VIEW_ELSEWHERE)


def test_a_procedure_of_two_images_states_nothing_of_one() -> None:
    assert view_of("", "", "CHEST (PA AND LAT)") == (View.OTHER, None, VIEW_NOT_STATED)


def test_an_oblique_by_its_code_is_other_though_the_procedure_says_ap() -> None:
    """The code speaks of this image, the procedure of the whole study."""
    assert view_of("", "left anterior oblique", "CHEST (PORTABLE AP)").view is View.OTHER


def test_an_unknown_word_is_kept_and_remarked() -> None:
    assert view_of("UPSIDE DOWN") == (View.OTHER, "UPSIDE DOWN", VIEW_UNKNOWN_WORD)
