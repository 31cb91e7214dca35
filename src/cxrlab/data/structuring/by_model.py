"""Structure reports with a language model: prompt, answers, checks and retries; the rules are the fallback."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.json_values import InvalidJson, loads
from cxrlab.core.llm_requests import count_tokens
from cxrlab.core.model_interfaces import Generated, TextRequest
from cxrlab.core.records import SECTIONS, Report, Study
from cxrlab.core.terminal import NoticeStream
from cxrlab.data.official_sections import official_report
from cxrlab.data.structuring.checks import (
    FLAGGED,
    faults,
    has_labels,
    label_violations,
    translation_violations,
    violations,
)
from cxrlab.data.structuring.rules import RULES, Ruled, correct_typos, structure
from cxrlab.data.structuring.sentences import joined, split

ENGLISH = "en"
# Prompt injection: sentences that instruct a machine.
_MACHINE = r"(?:ai|assistant|llm|language model|chatbot|chatgpt|gpt[\w.-]*)"
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.]*\b(?:instructions?|rules|prompt|everything"
    r"|above(?! (?:opacit|find|nodul|densit)))\b"
    r"|\b(?:do not|don't|never) (?:follow|obey)\b[^.]*\b(?:instructions?|rules|prompt)\b|\binstead of the above\b"
    rf"|\b(?:an?|to(?: the| any)?|dear|you(?: are|'re)(?: an?)?) {_MACHINE}\b|(?:^|[.!?]\s+)(?:{_MACHINE}[,:]|system:)"
    r"|\bsystem prompt\b|\bnew instructions?\b|<\|[^|]*\|>|\[/?inst\]|\{\s*\""
    r"|\b(?:summari[sz]|translat|rewrit|structur)ing this report\b"
    r"|\b(?:write|output|answer|respond|print|return|say|reply)\b(?: with)? (?:only|exactly|instead|the following)\b",
    re.IGNORECASE,
)
_WRITE = re.compile(
    r"(?:now |please |then |instead,? )*(?:write|output|answer|respond|print|return|say|reply|add|insert)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Source:
    """The text of a study as a structurer receives it."""

    language: str  # code such as `en` or `es`
    report: Report  # sections for rules and checks, without sentences that instruct a machine; empty if not English
    text: str
    addressed: bool = False  # whether there were such sentences

    @property
    def english(self) -> bool:
        """Whether the rules and the findings reader can read it."""
        return self.language == ENGLISH


def structuring_source(study: Study) -> Source | None:
    """The text of a study, None when it has none: its sections, else its report, cut by our rules.

    Sections by MIMIC-CXR's official rules lack what stands under other headers: there the report is cut anew.
    """
    language = str(study.extra.get("language") or ENGLISH).lower().partition("-")[0]
    whole = (study.report or "").strip()
    if language != ENGLISH:
        return Source(language, Report(), whole) if whole else None
    report = study.sections or Report()
    if whole and (not _holds(report) or report == official_report(study.report or "", study.id)):
        from cxrlab.data.sections import parse

        ours = parse(whole).report
        # A text without sections is all findings.
        report = ours if _holds(ours) else report if _holds(report) else Report(findings=whole)
    if not _holds(report):
        return None
    stated = without_instructions(report)
    return Source(language, stated, text_with_headings(report), addressed=stated != report)


def without_instructions(report: Report) -> Report:
    """The sections without sentences that instruct a machine (prompt injection)."""
    texts = report.to_json()
    if not any(_ORDER.search(text) for text in texts.values() if text):
        return report
    kept = {
        name: joined(one for one in split(text) if not _ORDER.search(one) and not _WRITE.match(one)) if text else None
        for name, text in texts.items()
    }
    return Report(**kept)


def _holds(report: Report) -> bool:
    """Whether there are findings or an impression."""
    return any(text and text.strip() for text in (report.findings, report.impression))


def text_with_headings(report: Report) -> str:
    """Sections as one text under their headings; those that are absent are left out."""
    parts = [(name, report.section(name)) for name in SECTIONS]
    return "\n".join(f"{name.upper()}: {text.strip()}" for name, text in parts if text and text.strip())


TEST = "test split: only the source's text"
NOT_CHOSEN = "not chosen"
NO_TEXT = "no report to structure"
FOREIGN = "not in English; needs a model to translate"
BY_MODEL = "structured by the model"
BY_MODEL_AGAIN = "structured by the model at a later attempt"
BY_RULES = "structured by rules"
KEPT_RULES = "kept rule-based: every answer of the model was refused"
NOT_TRANSLATED = "not translated: every answer of the model was refused"
DECLINED = "the model refused to answer"
UNCHECKED = "translated without labels to check it against"
DOUBTED = "the model's text is kept with a doubt"
ADDRESSED = "a sentence addressed to a machine is ignored"
COMPARES = "rules: a sentence still mentions an earlier image, because a finding depends on it"
RESTORED = "rules: a change was undone, because the text would have been read differently"


@dataclass(frozen=True)
class Outcome:
    """What became of one study."""

    id: str
    result: str
    by: str | None = None  # key of `structured` under which the text is; None if there is none
    attempts: int = 0
    # Why each refused answer was refused, in order; kinds and observations, never words of a report.
    refused: tuple[tuple[str, ...], ...] = ()
    prompt_tokens: int = 0
    tokens: int = 0
    remarks: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # what the validator doubts about the text that was kept, in the same form

    @property
    def counted(self) -> tuple[str, ...]:
        """What the card counts: the result, further remarks, and the kinds of refusal and doubt, each once."""
        refused = (f"an answer was refused: {_kind(reason)}" for reasons in self.refused for reason in reasons)
        doubts = (f"doubted: {_kind(doubt)}" for doubt in self.doubts)
        return tuple(
            dict.fromkeys((self.result, *self.remarks, *refused, *((DOUBTED,) if self.doubts else ()), *doubts))
        )


def _kind(problem: str) -> str:
    """The kind of a problem, without its observation."""
    return problem.partition(":")[0]


@dataclass(frozen=True)
class Structured:
    """The text for one study, by who made it, and how that went."""

    texts: Mapping[str, Mapping[str, str]]
    outcome: Outcome


def present_sections(report: Report) -> dict[str, str]:
    """The sections that are there, by name."""
    return {name: text for name in KEYS if (text := report.section(name))}


def rule_limitations(ruled: Ruled) -> tuple[str, ...]:
    """What the rules could not do, as remarks."""
    notes = ((COMPARES, ruled.compares), (RESTORED, ruled.restored))
    return tuple(sentence for sentence, count in notes if count)


class StoresAnswers(Protocol):
    """A text model with a store of its answers (`models.llm_cache.CachedTextModel`)."""

    @property
    def name(self) -> str: ...

    def answers(
        self, take: Callable[[], TextRequest | None], batch: int
    ) -> Iterator[tuple[TextRequest, Generated]]: ...

    def find(self, request: TextRequest) -> Generated | None: ...

    def write_batch(self, requests: Iterable[TextRequest], file: Path | None) -> int: ...


@dataclass
class Trial:
    """The first reports of a corpus, of which more than `most` refused ones stop the run before another one is sent.

    A report counts as refused if its first answer was.
    """

    size: int = 200
    most: float = 1.0
    begun: int = 0
    refused: int = 0
    answered: int = 0
    doubted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def waits(self) -> bool:
        """Whether another report may be begun only after more answers."""
        return self.begun == self.size and self.answered < self.size and self.most < 1

    def begin(self) -> None:
        """Count a report about to be sent."""
        if self.begun == self.size and self.refused > self.most * self.size:
            raise RunError(
                f"{self.sentence()} That is more than --max-refusals {self.most:g} allows, so no other report was "
                f"sent. Repeat the command with --max-refusals {min(self.refused / self.size + 0.05, 1):.2f} to go on, "
                "or choose another --prompt, another --model or --mode flag with a new folder."
            )
        self.begun = min(self.begun + 1, self.size + 1)

    def count(self, refused: Sequence[str], doubts: Sequence[str] = ()) -> bool:
        """Count a first answer, with why it was refused; returns whether it is the last of the trial."""
        if self.answered == self.size:
            return False
        self.answered += 1
        self.refused, self.doubted = self.refused + bool(refused), self.doubted + (bool(doubts) and not refused)
        self.reasons.update(set(map(_kind, refused)))
        return self.answered == self.size

    def sentence(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.reasons.most_common(3))
        return (
            f"Of the first {self.size:,} reports, the first answers to {self.refused:,} "
            f"({self.refused / self.size:.1%}) were refused{f' ({kinds})' if kinds else ''}, "
            f"and {self.doubted:,} were kept with doubts."
        )


@dataclass
class _Task:
    """One study under way; without a source it needs no request."""

    study: Study
    source: Source | None
    result: str = NO_TEXT
    refused: list[tuple[str, ...]] = field(default_factory=list)
    doubts: tuple[str, ...] = ()
    accepted: Report | None = None
    prompt_tokens: int = 0
    tokens: int = 0


_MOST_HELD = 4096  # studies that wait for the answer of an earlier one


@dataclass(frozen=True)
class ModelStructurer:
    """Structures studies with a language model."""

    model: StoresAnswers
    prompt: Prompt
    corpus: str
    retries: int = 2
    max_tokens: int = 1024
    seed: int = 7
    # strict refuses an answer that the checks doubt, flag keeps it with its doubts.
    mode: Literal["strict", "flag"] = "strict"
    batch: int = 16  # requests per batch of a model on this machine
    trial: Trial = field(default_factory=Trial)

    def structured(self, items: Iterable[tuple[Study, str | None]]) -> Iterator[tuple[Study, Structured]]:
        """Every study with its text and outcome, in order, while requests of later studies are under way.

        Args:
            items: Studies, each with the result of one that is passed on unchanged, else None.
        """
        left = iter(items)
        exhausted = False
        held: deque[_Task] = deque()  # in the order of the studies
        again: deque[_Task] = deque()  # with a refused answer
        asked: dict[TextRequest, _Task] = {}

        def take() -> TextRequest | None:
            nonlocal exhausted
            while not again:
                if len(held) == _MOST_HELD or self.trial.waits:
                    return None
                if (item := next(left, None)) is None:
                    exhausted = True
                    return None
                held.append(task := _task(*item))
                if not self._is_done(task):
                    self.trial.begin()
                    again.append(task)
            task = again.popleft()
            request = self._request(task)
            asked[request] = task
            return request

        while not exhausted or held:
            for request, answer in self.model.answers(take, self.batch):
                task = asked.pop(request)
                self._judge(task, request, answer)
                if not self._is_done(task):
                    again.append(task)
                while held and self._is_done(held[0]):
                    yield held[0].study, self._ended(held.popleft())
            while held and self._is_done(held[0]):
                yield held[0].study, self._ended(held.popleft())

    def open_requests(self, items: Iterable[tuple[Study, str | None]]) -> Iterator[TextRequest]:
        """The next request of each study whose stored answers do not suffice, as far as the trial allows."""
        for item in items:
            task = _task(*item)
            if self._is_done(task):
                continue
            if self.trial.waits:
                return
            self.trial.begin()
            while not self._is_done(task):
                request = self._request(task)
                answer = self.model.find(request)
                if answer is None:
                    yield request
                    break
                self._judge(task, request, answer)

    def _is_done(self, task: _Task) -> bool:
        return task.source is None or task.accepted is not None or len(task.refused) > self.retries

    def _request(self, task: _Task) -> TextRequest:
        assert task.source is not None
        problems = task.refused[-1] if task.refused else ()
        text = self.prompt.ask(task.source.text, task.source.language, problems)
        return TextRequest(text, self.max_tokens, self.seed + len(task.refused))

    def _judge(self, task: _Task, request: TextRequest, given: Generated) -> None:
        """Accept or refuse an answer."""
        prompt_tokens, tokens = count_tokens(request.prompt, given)
        task.prompt_tokens += prompt_tokens
        task.tokens += tokens
        first = not task.refused
        try:
            if given.refused:
                raise BadAnswer(DECLINED)
            answer = parse(given.text)
        except BadAnswer as error:
            problems: Sequence[str] = (str(error),)
        else:
            problems = self._problems(task, answer)
            # A model may have obeyed a sentence that is addressed to it: no doubt is then kept.
            lenient = self.mode == "flag" and task.source is not None and not task.source.addressed
            task.doubts = tuple(one for one in problems if lenient or _kind(one) in FLAGGED)
            problems = [one for one in problems if one not in task.doubts]
            task.accepted = None if problems else answer
        if problems:
            task.refused.append(tuple(problems))
        if first and self.trial.count(problems, task.doubts):
            NoticeStream(sys.stderr).write(f"{self.trial.sentence()}\n")

    def _problems(self, task: _Task, answer: Report) -> tuple[str, ...]:
        source = task.source
        assert source is not None
        if source.english:
            return violations(correct_typos(source.report), answer)
        problems = (*translation_violations(source.text, source.language, answer), *faults(answer))
        return (*label_violations(task.study, self.corpus, answer), *problems) if has_labels(task.study) else problems

    def _ended(self, task: _Task) -> Structured:
        """The text that the study gets: the model's, else one by rule, else none."""
        if task.source is None:
            return Structured({}, Outcome(task.study.id, task.result))
        name, report, result = "", Report(), NOT_TRANSLATED
        remarks: tuple[str, ...] = (ADDRESSED,) if task.source.addressed else ()
        if task.accepted is not None:
            name, report, result = self.model.name, task.accepted, BY_MODEL_AGAIN if task.refused else BY_MODEL
        elif task.source.english:
            ruled = structure(task.source.report)
            name, report, result = RULES, ruled.report, KEPT_RULES
            remarks += rule_limitations(ruled)
        if task.accepted is not None and not task.source.english and not has_labels(task.study):
            remarks += (UNCHECKED,)
        texts = present_sections(report)
        outcome = Outcome(
            task.study.id,
            result,
            by=name if texts else None,
            attempts=len(task.refused) + (task.accepted is not None),
            refused=tuple(task.refused),
            prompt_tokens=task.prompt_tokens,
            tokens=task.tokens,
            remarks=remarks,
            doubts=task.doubts if task.accepted is not None else (),
        )
        return Structured({name: texts} if texts else {}, outcome)


def _task(study: Study, result: str | None) -> _Task:
    return _Task(study, None if result else structuring_source(study), result or NO_TEXT)


BUILT_IN = Path(__file__).parent / "prompts" / "structure.yaml"
REPORT, LANGUAGE, PROBLEMS = "{report}", "{language}", "{problems}"
_MARKS = ("BEGIN REPORT", "END REPORT")
_LANGUAGES = {"en": "English", "es": "Spanish", "pt": "Portuguese", "fr": "French", "de": "German", "it": "Italian"}


@dataclass(frozen=True)
class Prompt:
    """A prompt with its version."""

    version: str  # name of the wording, which with the digest identifies its answers
    text: str  # with `{report}` once and, optionally, `{language}`
    again: str  # added when an answer was refused, with `{problems}`

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of the hash of version and texts."""
        return hashlib.sha256("\x1f".join((self.version, self.text, self.again)).encode()).hexdigest()[:12]

    def ask(self, report: str, language: str, problems: Sequence[str] = ()) -> str:
        """The prompt for one report."""
        for mark in _MARKS:
            report = report.replace(mark, mark.lower())
        # The report last: it may contain what looks like a placeholder.
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
    # The outermost object after any reasoning; in a fence if there is one.
    text = text.rpartition("</think>")[2]
    if text.count(_FENCE) > 1 and "{" in (fenced := text.split(_FENCE)[1]):
        text = fenced
    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        raise BadAnswer(NO_OBJECT)
    try:
        values = loads(text[start : end + 1])
    except InvalidJson:
        # Line breaks inside a text are no JSON, and common; nothing else is repaired.
        try:
            values = loads(" ".join(text[start : end + 1].split()))
        except InvalidJson:
            raise BadAnswer(BROKEN) from None
    named = {name.lower(): value for name, value in values.items()}
    if set(named) - set(KEYS) or len(named) < len(values):
        raise BadAnswer(OTHER_KEYS)
    sections: dict[str, str | None] = {}
    for name in KEYS:
        value = named.get(name)
        if not (value is None or isinstance(value, str)):
            raise BadAnswer(NOT_TEXT)
        if value is not None and value.strip().rstrip(".").lower() not in _NOTHING:
            # Without control characters, which could steer a terminal or turn the direction of a line.
            value = " ".join("".join(sign if sign.isprintable() else " " for sign in value).split())
            sections[name] = value
    if not any(sections.values()):
        raise BadAnswer(EMPTY)
    return Report(**sections)
