"""Prompts of judges: a versioned wording, and reports fenced as data against prompt injection.

A report stands between two marks that cannot occur in it, each of its lines behind a bar, and the judge is asked to begin
its answer with a third mark. Marks are hashes of the texts, chosen so that no text contains them: they differ from
question to question, and the same question is always the same prompt.

A user's wording may ask for reports without marks and bars, for a judge that was trained on such a prompt: `plain`, or
`cleaned` as CheXalign's program shows them to GREEN.
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

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError
from cxrlab.metrics.judging.answer_text import MARK_DIGITS, MARK_WORD, bare, fold

MARK, EXAMPLES = "mark", "examples"
_FENCE_DIGITS = 8
REPORTS = "reports"
_KEYS = ("version", "text", EXAMPLES, REPORTS)
_FENCED, _PLAIN, _CLEANED = SHOWN = "fenced", "plain", "cleaned"
_PLACE = re.compile(r"\{([a-z]+)\}")
# Tokens of chat templates (`<|im_end|>`, `</s>`, `[/INST]`) are split by a space, "<3 mm" is not.
_SPECIAL = re.compile(r"<(?=[^\s\d=<>]|0x)|\[(?=/?[A-Z_]{3,}\])")
_BRACKETS = re.compile(r"\[[^\]\n]*\]")
_INVISIBLE = ("Cf", "Cs", "Cc")  # formatting, surrogate and control characters
EMPTY = "(this report is empty)"


@dataclass(frozen=True)
class Example:
    """A question with its answer after the mark, for few-shot prompts; `reports` maps each place to its text."""

    reports: Mapping[str, str]
    answer: str


@dataclass(frozen=True)
class Question:
    """One prompt, the mark that its answer is to begin with, and the reports in it."""

    prompt: str
    mark: str
    reports: tuple[str, ...]


@dataclass(frozen=True)
class JudgePrompt:
    """A wording with its version."""

    version: str  # its name; answers are stored by version and digest
    text: str  # with a place (`{reference}`, `{candidate}`) for each report, and `{mark}` and `{examples}` where wanted
    examples: tuple[Example, ...] = ()  # for `{examples}`
    shown: str = _FENCED  # how reports stand in it, one of `SHOWN`; a report without marks can instruct the judge

    @cached_property
    def digest(self) -> str:
        """Hash of version, text, examples and how reports are shown; 12 hexadecimal digits."""
        examples = [(*sorted(example.reports.items()), example.answer) for example in self.examples]
        shown = () if self.shown == _FENCED else (self.shown,)
        return hashlib.sha256(repr((self.version, self.text, examples, *shown)).encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """Version and digest, as in signatures."""
        return f"{self.version}@{self.digest}"

    def ask(self, reports: Mapping[str, str]) -> Question:
        """The question about some reports, place → text."""
        fence, mark = signs(tuple(reports.values()))
        filled = {place: self._shown(place, text, fence) for place, text in reports.items()}
        filled |= {MARK: f"{MARK_WORD} {mark}", EXAMPLES: self._formatted_examples}
        # In one pass: a report may contain text that looks like a place.
        prompt = _PLACE.sub(lambda found: filled.get(found[1], found[0]), self.text)
        return Question(prompt, mark, tuple(reports.values()))

    @cached_property
    def _formatted_examples(self) -> str:
        formatted = []
        for number, example in enumerate(self.examples, 1):
            fence, mark = signs(tuple(example.reports.values()))
            parts = [self._shown(place, text, fence) for place, text in example.reports.items()]
            formatted.append("\n".join([f"Example {number}", *parts, f"{MARK_WORD} {mark}", example.answer.strip()]))
        return "\n\n".join(formatted)

    def _shown(self, place: str, text: str, fence: str) -> str:
        if self.shown == _FENCED:
            return fenced(place, text, fence)
        plain = "\n".join(map(_visible, text.splitlines())).strip()
        return plain if self.shown == _PLAIN else cleaned(plain)


def signs(texts: Sequence[str]) -> tuple[str, str]:
    """A sign for the fences and one for the answer, which no text contains, even in look-alike letters."""
    held = [bare(fold(text)) for text in texts]
    content = repr(tuple(texts)).encode("utf-8", "surrogatepass")
    for salt in count():
        digest = hashlib.sha256(f"{salt}:".encode() + content).hexdigest()
        fence, mark = digest[:_FENCE_DIGITS], digest[-MARK_DIGITS:]
        if not any(sign in text for sign in (fence, mark) for text in held):
            return fence, mark
    raise AssertionError("count() does not end")


def fenced(place: str, text: str, fence: str) -> str:
    """A report between its marks, each line behind a bar, without invisible signs."""
    lines = [f"| {_visible(line)}".rstrip() for line in text.splitlines()] if text.strip() else [EMPTY]
    name = place.upper()
    return "\n".join([f"BEGIN {name} {fence}", *lines, f"END {name} {fence}"])


def cleaned(text: str) -> str:
    """In lower case and on one line, without text in square brackets and without `**`."""
    return " ".join(_BRACKETS.sub("", text).replace("**", "").split()).lower()


def _visible(line: str) -> str:
    """A line without invisible signs, and without what a chat template could take for its own tokens."""
    visible = "".join(
        " " if sign == "\t" else "" if unicodedata.category(sign) in _INVISIBLE else sign for sign in line
    )
    return _SPECIAL.sub(lambda found: f"{found[0]} ", visible)


def load_prompt(built_in: str, places: Sequence[str], file: Path | None = None) -> JudgePrompt:
    """The built-in wording of a judge, or that of a YAML file with `version`, `text`, `examples` and `reports`.

    The text must have each of the `places` exactly once.
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
    shown = values.get(REPORTS, _FENCED)
    if shown not in SHOWN:
        raise ConfigError(f"{path}: '{REPORTS}' is {shown!r}; use {', '.join(SHOWN[:-1])} or {SHOWN[-1]}.")
    examples = values.get(EXAMPLES) or []
    if not isinstance(examples, list):
        raise ConfigError(f"{path}: '{EXAMPLES}' must be a list of examples with {', '.join(places)} and answer.")
    if bool(examples) != (f"{{{EXAMPLES}}}" in text):
        raise ConfigError(
            f"{path}: 'text' has {{{EXAMPLES}}} where there are examples and only there; correct one of them."
        )
    keys = (*places, "answer")
    for item in examples:
        if not isinstance(item, dict) or set(item) != set(keys) or not all(isinstance(item[key], str) for key in keys):
            raise ConfigError(f"{path}: each of the '{EXAMPLES}' needs the texts {', '.join(keys)} and nothing else.")
    parsed = tuple(Example({place: item[place] for place in places}, item["answer"]) for item in examples)
    return JudgePrompt(values["version"].strip(), text, parsed, shown)
