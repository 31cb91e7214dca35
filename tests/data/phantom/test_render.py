"""Images and their masks: exact, visible, reproducible."""

from __future__ import annotations

import numpy as np
import pytest
from complete_findings import complete
from tables import every_row

from cxrlab.core.errors import UnknownName
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Certainty, Presence, Severity, Side, View
from cxrlab.data.phantom.acquisition_presets import PRESETS
from cxrlab.data.phantom.anatomy import FAINT
from cxrlab.data.phantom.findings import APPEARANCE
from cxrlab.data.phantom.render import PhantomPatient, RenderedImage, render

pytestmark = pytest.mark.slow


def image(findings: list[Finding], turn: int = 0, size: int = 160, **how: object) -> RenderedImage:
    """An image of patient number `turn`."""
    phantom_patient = PhantomPatient(11, f"p{turn}", "FM"[turn % 2], 30.0 + 5 * turn)
    return render(phantom_patient, 1, View.AP if turn % 2 else View.PA, findings, size, **how)  # type: ignore[arg-type]


def test_the_table_of_appearances_is_the_list_of_drawn_observations() -> None:
    """One row each, none missing."""
    assert set(APPEARANCE) == set(DRAWN)


@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize("name", DRAWN)
def test_inside_its_mask_a_finding_changes_the_finished_image(name: str, turn: int) -> None:
    """The same patient with and without: the mean density in the mask moves the stated way.

    The stated contrast holds before blur, scatter, exposure and gamma, which together may take
    half of it; noise is the same in both images and cancels.
    """
    finding = complete(name, turn)
    with_it, without = image([finding], turn), image([], turn)
    mask, row = with_it.masks[0], APPEARANCE[name]
    change = float((with_it.image[mask] - without.image[mask]).mean()) * row.sign
    assert change > 0.5 * row.contrast
    assert with_it.contrast[0] >= 0.99 * row.contrast


@every_row("name", [name for name in DRAWN if APPEARANCE[name].draw is not None])
def test_far_outside_its_mask_a_painted_finding_changes_nothing(name: str) -> None:
    """Scatter reaches everywhere by design; beyond it, the rest of the image keeps its pixels."""
    with_it, without = image([complete(name)]), image([])
    difference = np.abs(with_it.image - without.image)
    assert np.median(difference) < 0.004
    assert difference[with_it.masks[0]].mean() > 5 * np.median(difference)


@every_row("name", DRAWN)
def test_a_faint_finding_is_there_but_weaker(name: str) -> None:
    """Possible findings change the image less in all; painted ones by a stated share of the contrast."""
    clear, faint = image([complete(name)]), image([complete(name, certainty=Certainty.POSSIBLE)])
    effect = [out.contrast[0] * out.masks[0].sum() for out in (faint, clear)]
    assert 0 < effect[0] < effect[1]
    if APPEARANCE[name].draw is not None:
        assert faint.contrast[0] < clear.contrast[0]
        assert faint.contrast[0] <= 1.25 * FAINT * APPEARANCE[name].contrast


@every_row("name", [n for n in DRAWN if complete(n).side is not None])
def test_left_is_on_the_right_of_the_image(name: str) -> None:
    """Images are read as if facing the patient; most of the mask lies on the finding's side of the spine.

    The left catheter crosses to the superior vena cava and a pacemaker's leads run to the heart:
    the point where the mask begins decides there.
    """
    for turn in (0, 1):
        finding = complete(name, turn)
        mask = image([finding], turn).masks[0]
        columns = np.nonzero(mask)[1]
        if name in ("central venous catheter", "pacemaker"):
            columns = np.array([columns.max() if finding.side is Side.LEFT else columns.min()])
        on_the_right = float((columns > mask.shape[1] / 2).mean())
        assert (on_the_right > 0.8) is (finding.side is Side.LEFT)


def test_zones_are_stacked_from_top_to_bottom() -> None:
    """The centre of an opacity goes down the image from zone to zone."""
    centres = []
    for zone in ("upper zone", "mid zone", "lower zone"):
        mask = image([Finding("consolidation", side=Side.RIGHT, severity=Severity.MODERATE, location=zone)]).masks[0]
        centres.append(float(np.nonzero(mask)[0].mean()))
    assert centres[0] < centres[1] - 20 < centres[2] - 40


@pytest.mark.parametrize(
    ("name", "sizes"), [("nodule", (8.0, 29.0)), ("mass", (31.0, 70.0)), ("granuloma", (5.0, 10.0))]
)
def test_size_in_millimetres_is_the_size_on_the_image(name: str, sizes: tuple[float, float]) -> None:
    """The width of the mask is the stated diameter, within soft edges and lobes."""
    for size_mm in sizes:
        finding = Finding(name, side=Side.RIGHT, location="mid zone", size_mm=size_mm)
        out = image([finding], size=512)
        columns = np.nonzero(out.masks[0].any(axis=0))[0]
        width_mm = (columns.max() - columns.min() + 1) * 344.0 / 512
        assert 0.65 * size_mm < width_mm < 1.5 * size_mm


def test_a_tube_ends_where_its_tip_is_stated_to_be() -> None:
    """Two heights above the carina that differ by 40 mm differ by 40 mm on the image."""
    ends = []
    for height in (20.0, 60.0):
        tube = Finding("endotracheal tube", tip="above carina", tip_mm=height)
        ends.append(np.nonzero(image([tube], size=344).masks[0])[0].max())
    assert ends[0] - ends[1] == pytest.approx(40.0, abs=4.0)


def test_images_are_reproducible_and_differ_by_patient_visit_and_preset() -> None:
    """Same arguments, same pixels; another patient, visit or machine, other pixels."""
    base = image([]).image
    assert np.array_equal(base, image([]).image)
    phantom_patient = PhantomPatient(11, "p0", "F", 30.0)
    others = [
        image([], 1).image,
        render(phantom_patient, 2, View.PA, [], 160).image,
        image([], preset="shifted").image,
        render(PhantomPatient(12, "p0", "F", 30.0), 1, View.PA, [], 160).image,
    ]
    assert all(np.abs(base - other).mean() > 0.005 for other in others)


def test_a_lesion_stays_in_its_place_from_visit_to_visit() -> None:
    """The same nodule at the next visit is at most a breath and a shift of position away."""
    nodule = Finding("nodule", side=Side.LEFT, location="mid zone", size_mm=20.0)
    phantom_patient = PhantomPatient(5, "p9", "M", 60.0)
    first, second = (render(phantom_patient, visit, View.PA, [nodule], 224).masks[0] for visit in (1, 2))
    centres = [np.array([axis.mean() for axis in np.nonzero(mask)]) for mask in (first, second)]
    assert np.abs(centres[0] - centres[1]).max() < 20


def test_absent_findings_are_not_drawn() -> None:
    """A resolved finding leaves no trace and no mask."""
    gone = Finding("pleural effusion", presence=Presence.ABSENT, side=Side.LEFT)
    out = image([gone])
    assert out.masks == {}
    assert np.array_equal(out.image, image([]).image)


@pytest.mark.parametrize("size", [32, 65, 300])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_finding_at_once_at_any_size(size: int, preset: str) -> None:
    """All drawn observations on one image: finite, in range, a mask of the image's size for each."""
    findings = [complete(name) for name in DRAWN]
    out = image(findings, size=size, preset=preset)
    assert out.image.shape == (size, size) and out.image.dtype == np.float32
    assert 0.0 <= float(out.image.min()) and float(out.image.max()) <= 1.0
    assert set(out.masks) == set(range(len(findings)))
    assert all(mask.shape == (size, size) for mask in out.masks.values())


@every_row("name", DRAWN)
def test_every_finding_can_be_seen_on_a_image_of_64_pixels(name: str) -> None:
    """Even on the smallest images worth training on, and on the other hospital's machine."""
    out = image([complete(name, 3)], size=64, preset="shifted")
    assert out.masks[0].any()
    assert out.contrast[0] >= 0.8 * APPEARANCE[name].contrast


def test_images_without_masks_are_the_same_images() -> None:
    """Masks cost time, not pixels."""
    findings = [complete("cardiomegaly"), complete("nodule")]
    bare = image(findings, masks=False)
    assert bare.masks == {}
    assert np.array_equal(bare.image, image(findings).image)


def test_an_unknown_preset_names_the_nearest() -> None:
    """The error teaches the right word."""
    with pytest.raises(UnknownName, match="shifted"):
        image([], preset="shiftd")
