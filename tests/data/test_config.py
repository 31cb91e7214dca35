"""Settings are refused at the door with a sentence that names the field."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.data.config import PhantomConfig, ScenesConfig, SheetConfig
from cxrlab.data.phantom.acquisition_presets import PRESETS
from cxrlab.findings.lexicon import LEXICONS


@every_row(
    ("config", "field", "value"),
    [
        (PhantomConfig, "n", 0),
        (PhantomConfig, "n", 10_000_001),
        (PhantomConfig, "n", True),
        (PhantomConfig, "n", 2.5),
        (PhantomConfig, "size", 16),
        (PhantomConfig, "size", 4096),
        (PhantomConfig, "seed", -1),
        (PhantomConfig, "preset", "shfted"),
        (PhantomConfig, "faint", 1.5),
        (PhantomConfig, "normal", -0.1),
        (PhantomConfig, "normal", "a quarter"),
        (PhantomConfig, "lexicon", "C"),
        (PhantomConfig, "workers", -1),
        (ScenesConfig, "n", -3),
        (ScenesConfig, "n", 10**12),
        (ScenesConfig, "size", 0),
        (SheetConfig, "columns", 0),
        (SheetConfig, "split", "tets"),
    ],
)
def test_a_bad_value_is_refused_by_name(config: type, field: str, value: object) -> None:
    """The message repeats the field and the value, so that the user finds it in a long command."""
    with pytest.raises(ConfigError, match=f"^{field}={value!r}"):
        config(**{field: value})


def test_a_near_miss_is_suggested() -> None:
    """A typo should cost seconds."""
    with pytest.raises(ConfigError, match="Did you mean 'shifted'"):
        PhantomConfig(preset="shfted")


def test_the_limits_themselves_are_allowed() -> None:
    """Off-by-one at the ends of a range."""
    assert PhantomConfig(n=10_000_000).n == 10_000_000
    assert PhantomConfig(n=1, size=32, faint=0, normal=1, workers=0).size == 32
    assert ScenesConfig(size=2048).size == 2048
    assert SheetConfig(split="val", columns=50).columns == 50


def test_every_preset_and_lexicon_can_be_requested() -> None:
    """The lists are those of the packages that define them, so that a new one needs no second entry."""
    for preset in PRESETS:
        assert PhantomConfig(preset=preset).preset == preset
    for lexicon in LEXICONS:
        assert PhantomConfig(lexicon=lexicon).lexicon == lexicon
