"""From attenuation to an image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cxrlab.core.vocabulary import View
from cxrlab.data.phantom.acquisition_presets import PRESETS
from cxrlab.data.phantom.image_plane import Array, Frame
from cxrlab.data.phantom.render import LETTERS, Exposure, develop, draw_exposure, tone

PLAIN = Exposure(
    gain=1.0, gamma=1.0, noise=0.0, blur_mm=0.01, scatter=0.0, turn=0.0, shift=(0.0, 0.0), zoom=1.0,
    border=None, grid=0.0, marker="", marker_at=(0.9, 0.05),
)  # fmt: skip


def developed(mu: Array, **changes: object) -> Array:
    """An image of this attenuation with a plain exposure but for the changes."""
    return develop(mu, replace(PLAIN, **changes), Frame(len(mu)), np.random.default_rng(0))  # type: ignore[arg-type]


def flat(value: float, size: int = 64) -> Array:
    """The same attenuation everywhere."""
    return np.full((size, size), value, dtype=np.float32)


def test_tone_is_black_for_air_and_always_rises() -> None:
    """No two attenuations look alike."""
    values = tone(np.linspace(0.0, 4.0, 50, dtype=np.float32))
    assert values[0] == 0.0
    assert (np.diff(values) > 0).all() and values[-1] < 1.0


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("view", [View.PA, View.AP])
def test_the_marker_names_the_side_that_it_stands_on(preset: str, view: View) -> None:
    """L is on the right of the image, where the patient's left is; R on the left."""
    seen = set()
    for k in range(40):
        exposure = draw_exposure(np.random.default_rng(k), PRESETS[preset], view)
        image = develop(
            flat(0.01, 128), replace(exposure, noise=0.0, border=None, grid=0.0), Frame(128), np.random.default_rng(1)
        )
        columns = np.nonzero(image > 0.9)[1]
        assert len(columns) > 0
        assert bool(columns.mean() > 64) is (exposure.marker[0] == "L")
        seen.add(exposure.marker)
    assert {"L", "R"} <= {marker[0] for marker in seen}
    assert (any(marker.endswith("AP") for marker in seen)) is (view is View.AP)


def test_a_marker_is_its_letters() -> None:
    """The burned-in pixels are those of the 5 × 7 glyph."""
    image = developed(flat(0.01, 128), marker="R", marker_at=(0.5, 0.1))
    rows, cols = np.nonzero(image > 0.9)
    glyph = image[rows.min() : rows.max() + 1, cols.min() : cols.max() + 1] > 0.9
    assert glyph.tolist() == [[bit == "1" for bit in line] for line in LETTERS["R"]]


def test_scatter_lowers_contrast_and_keeps_the_mean() -> None:
    """Light is spread, not lost."""
    mu = flat(0.2)
    mu[:, 32:] = 1.5
    clear, hazy = developed(mu), developed(mu, scatter=0.4)
    assert hazy.mean() == pytest.approx(clear.mean(), abs=0.01)
    assert hazy[:, 36].mean() - hazy[:, 27].mean() < 0.9 * (clear[:, 36].mean() - clear[:, 27].mean())


def test_blur_widens_an_edge() -> None:
    """The steepest step of the image becomes smaller."""
    mu = flat(0.2)
    mu[:, 32:] = 1.5
    steps = [np.abs(np.diff(developed(mu, blur_mm=blur), axis=1))[:, 20:44].max() for blur in (0.01, 12.0)]
    assert steps[1] < 0.7 * steps[0]


def test_more_gain_is_whiter_and_more_noise_is_noisier() -> None:
    """Exposure and dose act as their names say."""
    assert developed(flat(0.5), gain=1.3).mean() > developed(flat(0.5)).mean()
    spread = [developed(flat(0.5), noise=noise).std() for noise in (0.0, 0.02, 0.05)]
    assert spread[0] < spread[1] < spread[2]


def test_collimation_blackens_the_border_alone() -> None:
    """A tenth of the image at the top, nothing elsewhere."""
    image = developed(flat(1.0, 100), border=(0.1, 0.0, 0.0, 0.0))
    assert image[:9].max() < 0.01
    assert image[15:95, 5:95].min() > 0.5


def test_the_shifted_machine_is_noisier_and_darker() -> None:
    """The ranges of the two presets do not overlap in noise."""
    assert PRESETS["shifted"].noise[0] > PRESETS["standard"].noise[1]
    assert PRESETS["shifted"].exposure[1] <= PRESETS["standard"].exposure[0]
