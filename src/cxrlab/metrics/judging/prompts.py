"""What a judge is asked: a wording under a version of its own, and reports that cannot speak out of turn.

A report is data. It stands between two marks that it cannot know, each of its lines behind a bar, and the judge is
told to begin its answer with a third mark. All marks are hashes of the very texts, chosen so that none of the texts
holds them: they differ from question to question, and the same question is always the same prompt.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError
from cxrlab.metrics.judging.answers import MARK_DIGITS, MARK_WORD, bare, fold

MARK, EXAMPLES = "mark", "examples"
_FENCE_DIGITS = 8
_KEYS = ("version", "text", EXAMPLES)
_PLACE = re.compile(r"\{([a-z]+)\}")
# What a chat template takes for a change of speaker (`<|im_end|>`, `</s>`, `[/INST]`) is parted, "<3 mm" is not.
_SPECIAL = re.compile(r"<(?=[^\s\d=<>]|0x)|\[(?=/?[A-Z_]{3,}\])")
EMPTY = "(this report is empty)"


@dataclass(frozen=True)
class Example:
    """A question with its answer, shown before the real one.

    Args:
        reports: Place → text, as in the question.
        answer: What stands after the mark.
    """

    reports: Mapping[str, str]
    answer: str


@dataclass(frozen=True)
class Question:
    """One prompt.

    Args:
        prompt: What is sent.
        mark: The sign that the answer is to begin with.
        reports: The texts that stand in it as data.
    """

    prompt: str
    mark: str
    reports: tuple[str, ...]


@dataclass(frozen=True)
class JudgePrompt:
    """A wording with its version.

    Args:
        version: Its name; with the digest it tells which answers belong to it.
        text: With a place (`{reference}`, `{candidate}`) for each report, and `{mark}` and `{examples}` where wanted.
        examples: Questions with their answers, for `{examples}`.
    """

    version: str
    text: str
    examples: tuple[Example, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Marks the very words, whatever they call themselves; 12 hexadecimal digits."""
        told = [(*sorted(example.reports.items()), example.answer) for example in self.examples]
        return hashlib.sha256(repr((self.version, self.text, told)).encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """Version and digest, as signatures tell them."""
        return f"{self.version}@{self.digest}"

    def ask(self, reports: Mapping[str, str]) -> Question:
        """The question about some reports.

        Args:
            reports: Place → text.
        """
        fence, mark = signs(tuple(reports.values()))
        filled = {place: fenced(place, text, fence) for place, text in reports.items()}
        filled |= {MARK: f"{MARK_WORD} {mark}", EXAMPLES: self._shown}
        # In one pass: what looks like a place to be filled in may stand in a report.
        prompt = _PLACE.sub(lambda found: filled.get(found[1], found[0]), self.text)
        return Question(prompt, mark, tuple(reports.values()))

    @cached_property
    def _shown(self) -> str:
        shown = []
        for number, example in enumerate(self.examples, 1):
            fence, mark = signs(tuple(example.reports.values()))
            parts = [fenced(place, text, fence) for place, text in example.reports.items()]
            shown.append("\n".join([f"Example {number}", *parts, f"{MARK_WORD} {mark}", example.answer.strip()]))
        return "\n\n".join(shown)


def signs(texts: Sequence[str]) -> tuple[str, str]:
    """A sign for the fences and one for the answer, which none of the texts holds in any disguise."""
    held = [bare(fold(text)) for text in texts]
    told = repr(tuple(texts)).encode("utf-8", "surrogatepass")
    for salt in count():
        digest = hashlib.sha256(f"{salt}:".encode() + told).hexdigest()
        fence, mark = digest[:_FENCE_DIGITS], digest[-MARK_DIGITS:]
        if not any(sign in text for sign in (fence, mark) for text in held):
            return fence, mark
    raise AssertionError("count() does not end")


def fenced(place: str, text: str, fence: str) -> str:
    """A report between its marks, each line behind a bar; signs that nobody sees are taken out."""
    lines = [f"| {_shown_line(line)}".rstrip() for line in text.splitlines()] if text.strip() else [EMPTY]
    name = place.upper()
    return "\n".join([f"BEGIN {name} {fence}", *lines, f"END {name} {fence}"])


def _shown_line(line: str) -> str:
    seen = "".join(" " if sign == "\t" else "" if _unseen(sign) else sign for sign in line)
    return _SPECIAL.sub(lambda found: f"{found[0]} ", seen)


def _unseen(sign: str) -> bool:
    return not sign.isascii() and unicodedata.category(sign) in ("Cf", "Cs", "Cc") or (sign < " " or sign == "\x7f")


def load_prompt(built_in: str, places: Sequence[str], file: Path | None = None) -> JudgePrompt:
    """The wording that comes with a judge, or another from a YAML file with `version`, `text` and `examples`.

    Args:
        built_in: Name of the file beside this one, without its ending.
        places: The reports that the text must have a place for, each exactly once.
        file: The user's file; None for the built-in.
    """
    path = file or Path(__file__).parent / f"{built_in}.yaml"
    values, _ = read_yaml(path)
    if unknown := sorted(set(values) - set(_KEYS)):
        raise ConfigError(f"{path} has the key '{unknown[0]}'; a judge's prompt has {', '.join(_KEYS)}.")
    for key in ("version", "text"):
        if not isinstance(values.get(key), str) or not values[key].strip():
            raise ConfigError(f"{path} needs a text '{key}'; the files named in docs/language_models.md show the form.")
    text: str = values["text"]
    for place in places:
        if text.count(f"{{{place}}}") != 1:
            raise ConfigError(f"{path}: 'text' needs {{{place}}} exactly once, where that report is filled in.")
    examples = values.get(EXAMPLES) or []
    if not isinstance(examples, list):
        raise ConfigError(f"{path}: '{EXAMPLES}' must be a list of examples with {', '.join(places)} and answer.")
    if bool(examples) != (f"{{{EXAMPLES}}}" in text):
        raise ConfigError(
            f"{path}: 'text' has {{{EXAMPLES}}} where there are examples and only there; mend one of them."
        )
    return JudgePrompt(values["version"].strip(), text, tuple(_example(item, places, path) for item in examples))


def _example(item: Any, places: Sequence[str], path: Path) -> Example:
    keys = (*places, "answer")
    if not isinstance(item, dict) or set(item) != set(keys) or not all(isinstance(item[key], str) for key in keys):
        raise ConfigError(f"{path}: each of the '{EXAMPLES}' needs the texts {', '.join(keys)} and nothing else.")
    return Example({place: item[place] for place in places}, item["answer"])
