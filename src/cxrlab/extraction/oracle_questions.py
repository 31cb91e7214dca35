"""What a language model is asked as oracle: a file of questions under a version, and how often they are put."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.extraction.anatomy import Category
from cxrlab.extraction.oracles import KINDS, Kind

BUILT_IN = Path(__file__).parent / "oracle_questions.yaml"
PART, COUNT = "{part}", "{count}"
_KEYS = ("version", "parts", "wordings")


@dataclass(frozen=True)
class Consulting:
    """How an oracle that is a language model is asked.

    Args:
        questions: YAML file with other questions than the built-in ones.
        count: Descriptions that each question asks for.
        times: Times that each question is put, each time with another seed; a model that always answers alike is best
            asked once.
        max_tokens: Longest answer, in tokens.
    """

    questions: Path | None = None
    count: int = 12
    times: int = 1
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        for name in ("count", "times", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from 1.")


@dataclass(frozen=True)
class Question:
    """One question to an oracle.

    Args:
        category: What it asks about.
        kind: Whether abnormal or normal descriptions are wanted.
        wording: Place of its wording in the file, from 1.
        prompt: The words.
    """

    category: Category
    kind: Kind
    wording: int
    prompt: str


@dataclass(frozen=True)
class Questions:
    """A file of questions.

    Args:
        version: Name of the wording.
        parts: Category → the words for it.
        wordings: Kind → texts with `{part}` and, where wanted, `{count}`.
    """

    version: str
    parts: Mapping[Category, str]
    wordings: Mapping[Kind, tuple[str, ...]]

    @property
    def digest(self) -> str:
        """Marks the very words, whatever they call themselves; 12 hexadecimal digits."""
        words = [self.version, *(self.parts[category] for category in Category)]
        words += [text for kind in KINDS for text in (kind, *self.wordings[kind])]
        return hashlib.sha256("\x1f".join(words).encode()).hexdigest()[:12]

    def asked(self, count: int) -> Iterator[Question]:
        """Every question, category by category; each asks for so many descriptions."""
        for category in Category:
            for kind in KINDS:
                for number, text in enumerate(self.wordings[kind], 1):
                    prompt = text.replace(COUNT, str(count)).replace(PART, self.parts[category])
                    yield Question(category, kind, number, prompt)


def load_questions(file: Path | None = None) -> Questions:
    """The built-in questions, or those of a YAML file of the same form."""
    path = file or BUILT_IN
    values, _ = read_yaml(path)
    if unknown := [key for key in values if key not in _KEYS]:
        raise ConfigError(f"{path} has the key '{unknown[0]}'.{did_you_mean(str(unknown[0]), _KEYS)} "
                          f"Questions have: {', '.join(_KEYS)}.")  # fmt: skip
    version = values.get("version")
    if not isinstance(version, str) or not version.strip():
        raise ConfigError(f"{path} needs a text 'version', which tells its questions from others.")
    parts = _named(values.get("parts"), [category.value for category in Category], f"{path}: parts")
    wordings = _named(values.get("wordings"), list(KINDS), f"{path}: wordings")
    return Questions(
        version.strip(),
        {category: _text(parts[category.value], f"{path}: parts, '{category.value}'") for category in Category},
        {kind: _wordings(wordings[kind], f"{path}: wordings, '{kind}'") for kind in KINDS},
    )


def _named(given: Any, names: list[str], place: str) -> Mapping[str, Any]:
    """A mapping with exactly these keys."""
    found = given if isinstance(given, Mapping) else {}
    if wrong := sorted(set(map(str, found)) ^ set(names)):
        raise ConfigError(f"{place} must have exactly {', '.join(names)}; '{wrong[0]}' is missing or too many.")
    return found


def _text(given: Any, place: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f"{place} must be a text.")
    return given.strip()


def _wordings(given: Any, place: str) -> tuple[str, ...]:
    found = tuple(_text(one, place) for one in (given if isinstance(given, list) else [given]))
    for text in found:
        if text.count(PART) != 1:
            raise ConfigError(f"{place} needs {PART} exactly once in every wording, where the category is filled in.")
        for mark in re.findall(r"\{[a-z_]*\}", text):
            if mark not in (PART, COUNT):
                raise ConfigError(f"{place} holds {mark}, which stands for nothing; there are {PART} and {COUNT}.")
    if not found:
        raise ConfigError(f"{place} is empty; give at least one wording.")
    return found
