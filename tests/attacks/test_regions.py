"""Where an attack may change pixels, counted by hand; the lung stencil against phantoms."""

from __future__ import annotations

import numpy as np
import pytest
from tables import every_row

from cxrlab.attacks.regions import Region, parse_region, region_mask
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.vocabulary import View
from cxrlab.data.phantom.acquisition_presets import PRESETS
from cxrlab.data.phantom.anatomy import at_visit, draw_anatomy
from cxrlab.data.phantom.image_plane import Frame
from cxrlab.data.phantom.render import draw_exposure
from cxrlab.data.phantom.thorax import Thorax


def test_all_is_every_pixel() -> None:
    mask = region_mask("all", (5, 7))
    assert mask.shape == (5, 7) and mask.dtype == np.float32 and mask.all()


def test_a_patch_is_given_by_left_top_right_bottom() -> None:
    """On 10 rows and 20 columns: columns 2 to 9, rows 1 to 4."""
    mask = region_mask("patch:0.1,0.1,0.5,0.5", (10, 20))
    assert mask.sum() == 8 * 4 and mask[1:5, 2:10].all()


def test_a_border_is_a_frame_of_equal_width() -> None:
    """A tenth of the shorter side of 20 is 2 pixels; the inside of 16 x 36 is left alone."""
    mask = region_mask("border:0.1", (20, 40))
    assert mask.sum() == 20 * 40 - 16 * 36 and not mask[2:18, 2:38].any()


def test_half_a_side_is_everything() -> None:
    assert region_mask("border:0.5", (10, 12)).all()


def test_a_finding_is_kept_with_a_rim_of_two_hundredths_of_the_width() -> None:
    """2 % of 150 pixels are 3; a disc of radius 3 around one pixel holds 29 pixels."""
    found = np.zeros((90, 150), dtype=np.bool_)
    found[40, 60] = True
    kept = region_mask("off-findings", (90, 150), [found]) == 0
    assert kept.sum() == 29 and kept[40, 57:64].all() and kept[37:44, 60].all() and not kept[37, 61]


def test_several_findings_are_all_kept_up_to_the_rim_of_the_image() -> None:
    """A quarter of the disc of 29 in the corner is 11 pixels (4 + 3 + 3 + 1); masks may be of any number type."""
    first, second = np.zeros((90, 150), dtype=np.uint8), np.zeros((90, 150), dtype=np.float32)
    first[0, 0], second[60, 100] = 255, 1.0
    kept = region_mask("off-findings", (90, 150), [first, second]) == 0
    assert kept.sum() == 11 + 29


def test_off_findings_needs_masks_that_mark_something() -> None:
    nothing = np.zeros((8, 8), dtype=np.bool_)
    for masks in ([], [nothing]):
        with pytest.raises(DataError, match="off-findings.*masks"):
            region_mask("off-findings", (8, 8), masks)
    with pytest.raises(DataError, match=r"\[4, 4\].*\[8, 8\]"):
        region_mask("off-findings", (8, 8), [np.ones((4, 4))])


def test_an_empty_region_is_refused() -> None:
    with pytest.raises(DataError, match="off-findings.*no pixel"):
        region_mask("off-findings", (8, 8), [np.ones((8, 8))])
    with pytest.raises(ConfigError, match="no pixel of an image of 30 x 20"):
        region_mask("border:0.01", (20, 30))
    with pytest.raises(ConfigError, match="no pixel"):
        region_mask("patch:0.5,0,0.501,1", (20, 30))


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_the_stencil_holds_the_lungs_of_phantoms_and_leaves_room_outside(preset: str) -> None:
    outside = region_mask("off-lungs", (96, 96))
    assert 0.25 < outside.mean() < 0.5
    assert np.array_equal(outside, outside[:, ::-1])
    for patient in range(12):
        view = View.AP if patient % 3 == 0 else View.PA
        rng = generator(5, "stencil", patient)
        anatomy = at_visit(draw_anatomy(rng, "MF"[patient % 2], 60.0, PRESETS[preset]), rng, view)
        exposure = draw_exposure(rng, PRESETS[preset], view)
        lungs = Thorax(Frame(96, exposure.turn, exposure.shift, exposure.zoom), anatomy).lungs > 0.5
        assert outside[lungs].mean() < 0.05


def test_the_stencil_stretches_with_the_image() -> None:
    """Given in shares: on an image of another shape it takes the same share."""
    assert region_mask("off-lungs", (300, 200)).mean() == pytest.approx(
        region_mask("off-lungs", (96, 96)).mean(), abs=0.01
    )


def test_a_name_is_read_into_kind_and_numbers() -> None:
    assert parse_region("off-lungs") == Region("off-lungs")
    assert parse_region("patch:0,0.25,1,0.5") == Region("patch", (0.0, 0.25, 1.0, 0.5))


@every_row(
    ("name", "message"),
    [
        ("off-lung", "Did you mean 'off-lungs'"),
        ("", "There are: all"),
        ("all:1", "write 'all' alone"),
        ("off-lungs:", "write 'off-lungs' alone"),
        ("patch", "left, top, right and bottom"),
        ("patch:0,0,1", "left, top, right and bottom"),
        ("patch:0,0,1,x", "left, top, right and bottom"),
        ("patch:0,0,1,1.5", "from 0 to 1"),
        ("patch:0,0,nan,1", "from 0 to 1"),
        ("patch:0.5,0,0.5,1", "left must be smaller"),
        ("patch:0,1,1,0", "top than bottom"),
        ("border", "width as a share"),
        ("border:0", "above 0"),
        ("border:0.6", "up to 0.5"),
        ("border:nan", "above 0"),
        ("border:0.1,0.2", "width as a share"),
    ],
)
def test_nonsense_is_refused_with_the_way_out(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_region(name)
