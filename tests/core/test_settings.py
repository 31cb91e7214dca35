from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tables import every_row

from cxrlab.core.config import REQUIRED, Setting, parse_value, settings, type_words
from cxrlab.core.errors import ConfigError, short_repr
from cxrlab.core.vocabulary import Side

if TYPE_CHECKING:
    from cxrlab.nowhere import Unknown  # type: ignore[import-not-found]


@dataclass(frozen=True)
class Inner:
    """Inner.

    Args:
        depth: How deep,
            on two lines.
    """

    depth: int = 3


def stage(data: Path, inner: Inner, names: Sequence[str] = (), *, fast: bool = False) -> Unknown:
    """A stage.

    Args:
        data: Where it is.
        inner: Settings.
        names: Which.
        fast: Hurry.
    """


def test_a_function_gives_its_settings_although_its_return_type_is_unknown() -> None:
    found = {setting.key: setting for setting in settings(stage)}
    assert list(found) == ["data", "inner.depth", "names", "fast"]
    assert found["data"].required and found["data"].default is REQUIRED and found["data"].hint is Path
    assert found["inner.depth"].default == 3 and found["inner.depth"].help == "How deep, on two lines."
    assert found["fast"].default is False and found["fast"].help == "Hurry."


@every_row(
    ("hint", "text", "value"),
    [
        (int, "5", 5),
        (int | None, "null", None),
        (int | None, "5", 5),
        (float, "1e-4", 1e-4),
        (float, "1", 1.0),
        (bool, "true", True),
        (bool, "no", False),
        (str, "5", "5"),
        (str, "null", "null"),
        (str | None, "None", None),
        (Path, "a/b", Path("a/b")),
        (tuple[str, ...], "a, b", ("a", "b")),
        (tuple[str, ...], "", ()),
        (tuple[float, ...], "[1,2e-3]", (1.0, 0.002)),
        (tuple[int, int], "1,2", (1, 2)),
        (list[Path], "a,b", [Path("a"), Path("b")]),
        (tuple[str, ...] | None, "a,b", ("a", "b")),
        (Side, "left", Side.LEFT),
        (Literal["a", "b"], "b", "b"),
        (dict[str, float], '{"a": 1}', {"a": 1.0}),
    ],
)
def test_typed_text_is_read_as_meant(hint: Any, text: str, value: Any) -> None:
    found = parse_value(Setting("k", hint, None, ""), text, typed=True)
    assert found == value and type(found) is type(value)


@every_row(
    ("hint", "value", "words"),
    [
        (int, "1.0", "a whole number"),
        (int, True, "a whole number"),
        (int, None, "a whole number"),
        (float, "nan", "a number"),
        (float, "inf", "a number"),
        (bool, 1, "true or false"),
        (str, 5, "text"),
        (tuple[float, ...], "x", "a list of numbers"),
        (tuple[int, int], "1", "a list of 2 whole numbers"),
        (list[str], 3, "a list of text"),
        (Sequence[Path], 3, "a list of paths"),
        (Side | None, "up", "one of left, right, bilateral or null"),
        (Literal["a", "b"], "c", "one of a, b"),
        (dict[str, float], "x", "a group of 'name: value' lines"),
    ],
)
def test_a_wrong_type_names_key_value_and_type(hint: Any, value: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(Setting("train.k", hint, None, ""), value, typed=True)
    assert str(caught.value).startswith(f"train.k is {short_repr(value)}; it must be {words}.")
    assert type_words(hint) == words


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (float, "1e999"),
        (float, math.inf),
        (float, math.nan),
        (tuple[float, ...], "1,1e999"),
        (float | None, -math.inf),
        (float, 10**400),
        (int, "9" * 5000),
    ],
)
def test_a_number_beyond_all_bounds_is_refused_in_a_short_sentence(hint: Any, value: Any) -> None:
    """An infinity would spoil a result hours later; the digits of a long number would fill the screen."""
    with pytest.raises(ConfigError, match=r"^rate is .*; it must be") as caught:
        parse_value(Setting("rate", hint, None, ""), value, typed=True)
    assert len(str(caught.value)) < 200


def test_a_whole_number_that_no_database_takes_is_reported() -> None:
    setting = Setting("seed", int, 7, "")
    assert parse_value(setting, str(2**62 - 1), typed=True) == 2**62 - 1
    for value in (str(2**62), "-99999999999999999999"):
        with pytest.raises(ConfigError, match=r"^seed is .*less than 63 bits"):
            parse_value(setting, value, typed=True)
