from __future__ import annotations

import pytest

from cxrlab.core import errors
from cxrlab.core.errors import CxrlabError, nearest


def test_nearest_finds_a_slip_whatever_the_case() -> None:
    """One wrong letter, and capitals, are what people get wrong."""
    assert nearest("sise", ["size", "depth"]) == " Did you mean 'size'?"
    assert nearest("EDEMA", ["Edema", "Fracture"]) == " Did you mean 'Edema'?"


def test_nearest_is_silent_when_nothing_is_close() -> None:
    """A wild guess would send the user the wrong way."""
    assert nearest("zzzz", ["size", "seed"]) == ""


def test_nearest_names_at_most_three() -> None:
    assert nearest("ab1", ["ab2", "ab3", "ab4", "ab5"]).count("'") == 6


@pytest.mark.parametrize(
    "name", ["ConfigError", "DataError", "VocabularyError", "UnknownName", "MissingExtra", "RunError"]
)
def test_every_error_is_of_the_family(name: str) -> None:
    """The command line catches the root alone."""
    assert issubclass(getattr(errors, name), CxrlabError)
