"""The lateral image of a phantom: the same chest and truth from the side, and a frontal image that stays as it was."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from complete_findings import complete
from phantom_fingerprint import lateral_fingerprint
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Severity, Side, View
from cxrlab.data.check import check_corpus
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.anatomy import RESHAPES
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.phantom.findings import APPEARANCE
from cxrlab.data.phantom.image_plane import FIELD_MM, Array
from cxrlab.data.phantom.lateral_findings import LATERAL
from cxrlab.data.phantom.render import HIDDEN, PhantomPatient, hidden_findings, render, render_lateral
from cxrlab.data.views import classify_views
from cxrlab.findings.simulated_patients import draw_patient

pytestmark = pytest.mark.slow

SMALL = PhantomConfig(n=24, size=48, seed=3, workers=1)
BOTH = replace(SMALL, lateral=True)
# docs/phantom.md names them.
NOT_DRAWN = {"pneumothorax", "rib fracture", "clavicle fracture", "subcutaneous emphysema", "scoliosis"}


def patient(turn: int = 0) -> PhantomPatient:
    return PhantomPatient(11, f"p{turn}", "FM"[turn % 2], 30.0 + 5 * turn)


def lateral(findings: list[Finding], turn: int = 0, size: int = 160) -> Array:
    return render_lateral(patient(turn), 1, findings, size)


def images(folder: Path, pattern: str) -> dict[str, str]:
    """Every file of a pattern with its hash."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob(pattern))}


def test_a_lateral_image_joins_each_study_and_nothing_else_changes(tmp_path: Path) -> None:
    plain, both = make_phantom(SMALL, tmp_path / "plain"), make_phantom(BOTH, tmp_path / "both")
    frontal = images(tmp_path / "plain", "*/*.png")
    after = images(tmp_path / "both", "*/*.png")
    assert {name: after[name] for name in frontal} == frontal
    assert len(after) == len(frontal) + 24
    for one, other in zip(plain, both, strict=True):
        assert (other.images[0], other.images[1].view) == (one.images[0], View.LATERAL)
        assert replace(other, images=one.images) == one
    assert check_corpus(tmp_path / "both").ok


def test_hidden_findings_change_the_frontal_pixels_and_no_word_of_the_truth(tmp_path: Path) -> None:
    both = make_phantom(replace(BOTH, n=60), tmp_path / "both")
    hidden = make_phantom(replace(BOTH, n=60, hidden=1.0), tmp_path / "hidden")
    concerned = 0
    for one, other in zip(both, hidden, strict=True):
        numbers = other.extra.get("hidden", [])
        assert replace(other, extra=one.extra, masks=one.masks) == one
        assert set(one.masks) - set(other.masks) == {str(number) for number in numbers}
        assert np.array_equal(both.image(one), hidden.image(other)) is not bool(numbers)
        concerned += len(numbers)
    assert concerned > 5
    assert check_corpus(tmp_path / "hidden").ok


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    for workers in (1, 2):
        make_phantom(replace(BOTH, hidden=0.5, workers=workers), tmp_path / str(workers))
    assert images(tmp_path / "1", "**/*.*") == images(tmp_path / "2", "**/*.*")


def test_a_changed_lateral_drawing_raises_its_number() -> None:
    """As `test_phantom_corpus.py` for the frontal images: raise `LATERAL_DRAWING`, run `renew_drawing.py`."""
    assert lateral_fingerprint() == json.loads(Path(__file__).with_name("drawing_lateral.json").read_text())


@every_row("name", LATERAL)
def test_a_finding_changes_the_lateral_image_in_its_direction(name: str) -> None:
    """Where the image changes most, it moves by more than half of the stated contrast; the rest keeps its pixels."""
    for turn in range(3):
        difference = lateral([complete(name, turn)], turn) - lateral([], turn)
        difference *= LATERAL[name].sign
        level = 0.5 * LATERAL[name].contrast
        assert (difference > level).sum() >= 4, turn
        assert np.median(np.abs(difference)) < 0.01, turn


@every_row("name", RESHAPES)
def test_findings_that_reshape_the_chest_do_so_in_both_views(name: str) -> None:
    difference = np.abs(lateral([complete(name, 1)]) - lateral([]))
    assert (float(difference.max()) > 0.1) is (name not in NOT_DRAWN)


def test_every_observation_is_drawn_or_listed_as_not_drawn() -> None:
    assert {*LATERAL, *RESHAPES} - NOT_DRAWN == set(DRAWN) - NOT_DRAWN
    assert not NOT_DRAWN & set(LATERAL)
    for name in NOT_DRAWN:
        assert np.array_equal(lateral([complete(name)]), lateral([])), name
    assert all(row.sign == APPEARANCE[name].sign for name, row in LATERAL.items())
    page = (Path(__file__).parents[3] / "docs" / "phantom.md").read_text()
    assert all(name in page for name in NOT_DRAWN)


def test_a_lesion_lies_at_the_height_of_the_frontal_image() -> None:
    """Within 20 mm: the two images are shifted and zoomed on their own. Zones are 60 mm apart."""
    for turn in range(4):
        for zone in ("upper zone", "mid zone", "lower zone"):
            finding = Finding("mass", side=Side.RIGHT, location=zone, size_mm=45.0)
            frontal = render(patient(turn), 1, View.PA, [finding], 160).masks[0]
            rows = np.nonzero(lateral([finding], turn) - lateral([], turn) > 0.07)[0]
            apart_mm = abs(float(rows.mean()) - float(np.nonzero(frontal)[0].mean())) * FIELD_MM / 160
            assert apart_mm < 20.0, (turn, zone)


def test_a_small_effusion_blunts_the_angle_at_the_back() -> None:
    """It whitens the lower right quarter of the image, which holds the back, and nothing in the front."""
    change = lateral([Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)]) - lateral([])
    rows, columns = np.nonzero(change > 0.08)
    assert rows.min() > 100 and columns.min() > 80


def test_a_hidden_finding_is_faint_on_the_frontal_image_and_plain_on_the_lateral_one() -> None:
    for finding in (
        Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD),
        Finding("consolidation", side=Side.LEFT, location="lower zone", severity=Severity.MODERATE),
    ):
        assert hidden_findings(patient(), [finding], 1.0) == (finding,)
        contrast = APPEARANCE[finding.observation].contrast
        shown = render(patient(), 1, View.PA, [finding], 160).contrast[0]
        hidden = render(patient(), 1, View.PA, [finding], 160, hidden=[finding]).contrast[0]
        assert shown >= contrast and 0 < hidden <= 1.6 * HIDDEN * contrast
        drawn = render_lateral(patient(), 1, [finding], 160, hidden=[finding])
        assert (drawn - lateral([]) > 0.5 * LATERAL[finding.observation].contrast).sum() > 20


def test_only_small_effusions_and_lower_opacities_hide_and_each_stays_hidden() -> None:
    never = [
        Finding("pleural effusion", side=Side.LEFT, severity=Severity.SEVERE),
        Finding("consolidation", side=Side.LEFT, location="upper zone"),
        Finding("nodule", side=Side.LEFT, location="lower zone", size_mm=20.0),
    ]
    assert hidden_findings(patient(), never, 1.0) == ()
    small = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)
    assert hidden_findings(patient(), [small], 0.0) == ()
    chosen = [bool(hidden_findings(patient(turn), [small], 0.5)) for turn in range(400)]
    assert 0.4 < np.mean(chosen) < 0.6
    faint = replace(small, severity=Severity.TRACE)  # the same lesion at another visit
    assert chosen == [bool(hidden_findings(patient(turn), [faint], 0.5)) for turn in range(400)]


@every_row("preset", ("standard", "shifted"))
def test_the_view_classifier_recognises_both_views(preset: str) -> None:
    right = []
    for number in range(20):
        case = draw_patient(5, f"p{number}")
        visit = case.visits[0]
        phantom = PhantomPatient(5, case.patient, visit.sex, visit.age)
        frontal = render(phantom, 1, visit.view, visit.findings, 128, preset, masks=False).image
        pair = (frontal, render_lateral(phantom, 1, visit.findings, 128, preset))
        right.append([guess.view for guess in classify_views(pair)] == [View.FRONTAL, View.LATERAL])
    assert np.mean(right) >= 0.95


def test_hidden_findings_need_lateral_images() -> None:
    with pytest.raises(ConfigError, match="0.5"):
        PhantomConfig(hidden=0.5)
    with pytest.raises(ConfigError, match="1.5"):
        PhantomConfig(hidden=1.5, lateral=True)
