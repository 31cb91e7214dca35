"""A language model as structurer: asked in batches, checked by the findings reader, asked again, then given up."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.json_values import InvalidJson, loads
from cxrlab.core.llm import count_tokens
from cxrlab.core.protocols import Generated, TextModel
from cxrlab.core.records import Report, Study
from cxrlab.data.structuring.checks import faults, has_labels, label_violations, translation_violations, violations
from cxrlab.data.structuring.records import (
    ADDRESSED,
    BY_MODEL,
    BY_MODEL_AGAIN,
    COMPARES,
    DECLINED,
    KEPT_RULES,
    NO_TEXT,
    NOT_TRANSLATED,
    RESTORED,
    UNCHECKED,
    Outcome,
    Source,
    Structured,
    structuring_source,
)
from cxrlab.data.structuring.rules import RULES, Ruled, mend, structure


def told(report: Report) -> dict[str, str]:
    """The sections that are there, by name."""
    return {name: text for name in KEYS if (text := report.section(name))}


def shortfalls(ruled: Ruled) -> tuple[str, ...]:
    """What the rules could not do, as remarks."""
    notes = ((COMPARES, ruled.compares), (RESTORED, ruled.restored))
    return tuple(sentence for sentence, count in notes if count)


@dataclass
class _Task:
    """One study under way."""

    study: Study
    source: Source
    refused: list[tuple[str, ...]] = field(default_factory=list)
    accepted: Report | None = None
    prompt_tokens: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class ModelStructurer:
    """Structures studies with a language model.

    Args:
        model: Any text model; one that keeps its answers asks nothing twice.
        prompt: What it is told.
        corpus: Name of the corpus, for the label map of translated reports.
        retries: How often a refused answer is asked for again.
        max_tokens: Longest answer.
        seed: Handed to the model; each further attempt adds one.
    """

    model: TextModel
    prompt: Prompt
    corpus: str
    retries: int = 2
    max_tokens: int = 1024
    seed: int = 7

    def structure(self, studies: Sequence[Study]) -> list[Structured]:
        """Text and outcome of each study, in order."""
        tasks = [_Task(study, source) for study in studies if (source := structuring_source(study)) is not None]
        for attempt in range(self.retries + 1):
            open_tasks = [task for task in tasks if task.accepted is None]
            if open_tasks:
                self._round(open_tasks, attempt)
        done = {task.study.id: self._ended(task) for task in tasks}
        return [done.get(study.id) or Structured({}, Outcome(study.id, NO_TEXT)) for study in studies]

    def _round(self, tasks: Sequence[_Task], attempt: int) -> None:
        """Ask for every study that has no accepted answer, and judge what comes."""
        asked = [self.prompt.ask(t.source.text, t.source.language, t.refused[-1] if t.refused else ()) for t in tasks]
        given = self.model.complete(asked, max_tokens=self.max_tokens, seed=self.seed + attempt)
        if len(given) != len(asked):
            raise RunError(f"{self.model.name} gave {len(given)} answers to {len(asked)} prompts; use another model.")
        for task, text, answer in zip(tasks, asked, given, strict=True):
            prompt_tokens, tokens = count_tokens(text, answer)
            task.prompt_tokens += prompt_tokens
            task.tokens += tokens
            self._judge(task, answer)

    def _judge(self, task: _Task, given: Generated) -> None:
        """Accept the answer or note why not."""
        if given.refused:
            task.refused.append((DECLINED,))
            return
        try:
            answer = parse(given.text)
        except BadAnswer as error:
            task.refused.append((str(error),))
            return
        source = task.source
        if source.english:
            problems = violations(mend(source.report), answer)
        else:
            problems = (*translation_violations(source.text, source.language, answer), *faults(answer))
            if has_labels(task.study):
                problems = (*label_violations(task.study, self.corpus, answer), *problems)
        if problems:
            task.refused.append(problems)
        else:
            task.accepted = answer

    def _ended(self, task: _Task) -> Structured:
        """The text that the study gets: the model's, else one by rule, else none."""
        name, report, result = "", Report(), NOT_TRANSLATED
        remarks: tuple[str, ...] = (ADDRESSED,) if task.source.addressed else ()
        if task.accepted is not None:
            name, report, result = self.model.name, task.accepted, BY_MODEL_AGAIN if task.refused else BY_MODEL
        elif task.source.english:
            ruled = structure(task.source.report)
            name, report, result = RULES, ruled.report, KEPT_RULES
            remarks += shortfalls(ruled)
        if task.accepted is not None and not task.source.english and not has_labels(task.study):
            remarks += (UNCHECKED,)
        texts = told(report)
        outcome = Outcome(
            task.study.id,
            result,
            by=name if texts else None,
            attempts=len(task.refused) + (task.accepted is not None),
            refused=tuple(task.refused),
            prompt_tokens=task.prompt_tokens,
            tokens=task.tokens,
            remarks=remarks,
        )
        return Structured({name: texts} if texts else {}, outcome)


BUILT_IN = Path(__file__).parent / "prompts" / "structure.yaml"
REPORT, LANGUAGE, PROBLEMS = "{report}", "{language}", "{problems}"
_MARKS = ("BEGIN REPORT", "END REPORT")
_LANGUAGES = {"en": "English", "es": "Spanish", "pt": "Portuguese", "fr": "French", "de": "German", "it": "Italian"}


@dataclass(frozen=True)
class Prompt:
    """A prompt with its version.

    Args:
        version: Name of the wording; with the digest it tells which answers belong to it.
        text: With `{report}` once and, where wanted, `{language}`.
        again: Added when an answer was refused, with `{problems}`.
    """

    version: str
    text: str
    again: str

    @property
    def digest(self) -> str:
        """Marks the very words, whatever they call themselves; 12 hexadecimal digits."""
        return hashlib.sha256("\x1f".join((self.version, self.text, self.again)).encode()).hexdigest()[:12]

    def ask(self, report: str, language: str, problems: Sequence[str] = ()) -> str:
        """The prompt for one report.

        Args:
            report: The text to be structured; the marks that fence it are taken out of it.
            language: Code such as `en` or `es`.
            problems: Why the answer before was refused; empty for the first one.
        """
        for mark in _MARKS:
            report = report.replace(mark, mark.lower())
        # The report last: what looks like a place to be filled in may stand in it.
        asked = self.text.replace(LANGUAGE, _LANGUAGES.get(language, language))
        before, _, after = asked.partition(REPORT)
        again = self.again.replace(PROBLEMS, "\n".join(f"- {problem}" for problem in problems)) if problems else ""
        return f"{before}{report}{after}{again}"


def load_prompt(file: Path | None = None) -> Prompt:
    """The built-in prompt, or one from a YAML file with `version`, `text` and, optionally, `again`."""
    path = file or BUILT_IN
    values, _ = read_yaml(path)
    if unknown := sorted(set(values) - {"version", "text", "again"}):
        raise ConfigError(f"{path} has the key '{unknown[0]}'; a prompt has version, text and again.")
    for key in ("version", "text"):
        if not isinstance(values.get(key), str) or not values[key].strip():
            raise ConfigError(f"{path} needs a text '{key}'; see docs/structuring.md for the form of a prompt.")
    again = values.get("again", f"\nAn earlier answer was refused:\n{PROBLEMS}\nAnswer again.\n")
    if values["text"].count(REPORT) != 1:
        raise ConfigError(f"{path}: 'text' needs {REPORT} exactly once, where the report is filled in.")
    if not isinstance(again, str) or PROBLEMS not in again:
        raise ConfigError(f"{path}: 'again' needs {PROBLEMS}, where the reasons of a refusal are filled in.")
    return Prompt(values["version"].strip(), values["text"], again)


KEYS = ("examination", "indication", "findings", "impression")
NO_OBJECT = "the answer holds no JSON object"
BROKEN = "the JSON object is broken or cut off"
OTHER_KEYS = "the JSON object has other keys than the four sections"
NOT_TEXT = "a section is neither text nor null"
EMPTY = "every section is empty"
TOO_LONG = "the answer is too long for a report"

# What models write for "nothing".
_NOTHING = frozenset({"", "null", "none", "n/a", "na", "not applicable", "not provided", "not available", "-"})
_FENCE = "```"
# Characters of the longest answer that is looked at: ten times the longest report.
LONGEST = 100_000


class BadAnswer(ValueError):
    """An answer that cannot be used; the message is one of the fixed sentences above."""


def parse(text: str) -> Report:
    """The four sections of an answer; a key left out counts as null, any other fault is a `BadAnswer`."""
    if len(text) > LONGEST:
        raise BadAnswer(TOO_LONG)
    values = _object(text)
    if set(values) - set(KEYS):
        raise BadAnswer(OTHER_KEYS)
    if not all(value is None or isinstance(value, str) for value in values.values()):
        raise BadAnswer(NOT_TEXT)
    sections = {name: _cleaned(values.get(name)) for name in KEYS}
    if not any(sections.values()):
        raise BadAnswer(EMPTY)
    return Report(**sections)


def _object(text: str) -> dict[str, str | None]:
    """The outermost object of the text after any thinking aloud; in a fence if there is one."""
    text = text.rpartition("</think>")[2]
    if text.count(_FENCE) > 1 and "{" in (fenced := text.split(_FENCE)[1]):
        text = fenced
    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        raise BadAnswer(NO_OBJECT)
    try:
        value = loads(text[start : end + 1])
    except InvalidJson:
        # Lines broken inside a text are no JSON, and common; nothing else is guessed.
        try:
            value = loads(" ".join(text[start : end + 1].split()))
        except InvalidJson:
            raise BadAnswer(BROKEN) from None
    found: dict[str, str | None] = value  # it begins with a brace, so it is an object
    return found


def _cleaned(text: str | None) -> str | None:
    if text is None or text.strip().rstrip(".").lower() in _NOTHING:
        return None
    # Signs that steer a terminal or turn the direction of a line are no words.
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
