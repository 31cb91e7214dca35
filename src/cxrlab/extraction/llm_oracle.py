"""The oracle that is a language model: asked once what chest images can show, believed where its words can be read.

    oracle.json       which model, what became of its answers, and every description that was kept
    oracle/           every request with its answer, see `models.asked_once`

The model sees neither an image nor an answer of the victim. An abnormal description must state a finding of its
category that the reader knows, a normal one must speak of it and state none: what we cannot read we could not measure
either.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.config import read_yaml
from cxrlab.core.endpoints import EgressData
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json, write_json
from cxrlab.core.llm import LLMConfig
from cxrlab.core.protocols import TextModel
from cxrlab.extraction.config import OraclePrompts
from cxrlab.extraction.oracles import KINDS, Descriptions, Kind
from cxrlab.extraction.report_text import Category, category_of, distinct, split_by_category, words_of
from cxrlab.findings.reader import read

ORACLE, FOLDER = "oracle.json", "oracle"
REPEATED = "said before"
_EXAMPLES = 3  # of what was dropped for one reason


@dataclass
class DescriptionCollector:
    """What was kept of a model's answers, and what became of the rest.

    Args:
        rows: (kind, category) → descriptions, in the order in which they came.
        answers: State of an answer → how many.
        failures: Answers without a description, with the reason.
        dropped: Reason → how many descriptions.
        examples: Reason → some of them.
    """

    rows: dict[tuple[Kind, Category], list[str]] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def take(self, question: Question, told: ParsedAnswer) -> None:
        """Add what an answer lists, each description after it was read."""
        self.answers[told.state] += 1
        if told.why:
            where = {"category": question.category.value, "kind": question.kind, "wording": question.wording}
            self.failures.append({**where, "state": told.state, "why": told.why})
        rows = self.rows.setdefault((question.kind, question.category), [])
        known = {words_of(row) for row in rows}
        for text in told.lines:
            reason = REPEATED if words_of(text) in known else misfit(text, question.category, question.kind)
            if reason is None:
                rows.append(text)
                known.add(words_of(text))
                continue
            self.dropped[reason] += 1
            if len(shown := self.examples.setdefault(reason, [])) < _EXAMPLES:
                shown.append(text)

    def descriptions(self, model: str) -> Descriptions:
        """All that was kept; a `DataError` where a category has no description of a kind."""
        missing = [f"{kind} {part.value}" for kind in KINDS for part in Category if not self.rows.get((kind, part))]
        if missing:
            told = ", ".join(f"{count} {reason}" for reason, count in self.dropped.most_common()) or "none were dropped"
            raise DataError(
                f"the oracle '{model}' gave no usable description for {', '.join(missing)} ({self.answers['failed']} "
                f"of {self.answers.total()} answers could not be read; descriptions: {told}); name a stronger model, "
                "or other questions with --consulting.questions."
            )
        found = {kind: {part: distinct(self.rows[kind, part]) for part in Category} for kind in KINDS}
        return Descriptions(found["abnormal"], found["normal"])


def misfit(text: str, category: Category, kind: Kind) -> str | None:
    """Why a description cannot stand for a category and kind; None where it can."""
    reading = read(text)
    present = [finding for finding in reading if finding.present]
    if kind == "normal":
        if present:
            return "states a finding where nothing should be wrong"
        if not reading.has_statements:
            return "says nothing that the reader knows"
        return None if split_by_category(text)[category] else "speaks of another part"
    if not present:
        return "states no finding that the reader knows"
    return None if any(category_of(one.observation) is category for one in present) else "speaks of another part"


@dataclass(frozen=True)
class ModelOracle:
    """Descriptions by a language model.

    Args:
        model: Answers text with text.
        consulting: How often it is asked, and with which questions.
        seed: Of its answers.
    """

    model: TextModel
    consulting: OraclePrompts = OraclePrompts()
    seed: int = 0

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    def describe(self) -> Descriptions:
        """All descriptions, without those that do not fit."""
        return self.consulted()[0]

    def consulted(self) -> tuple[Descriptions, dict[str, Any]]:
        """The descriptions, and what was asked, kept and dropped, JSON-ready."""
        questions = load_questions(self.consulting.questions)
        asked = list(questions.asked(self.consulting.count))
        pool = DescriptionCollector()
        for turn in range(self.consulting.times):
            for question, told in zip(asked, self._answers(asked, self.seed + turn), strict=True):
                pool.take(question, told)
        found = pool.descriptions(self.name)
        return found, {**self._told(questions, len(asked), pool), "kept": found.counts()}

    def _answers(self, asked: Sequence[Question], seed: int) -> list[ParsedAnswer]:
        prompts = [question.prompt for question in asked]
        given = self.model.complete(prompts, max_tokens=self.consulting.max_tokens, seed=seed)
        return [parse_descriptions(answer.text) for answer in given]

    def _told(self, questions: Questions, asked: int, pool: DescriptionCollector) -> dict[str, Any]:
        return {
            "model": self.name,
            "questions": {"version": questions.version, "digest": questions.digest},
            "asked": asked * self.consulting.times,
            "answers": {state: pool.answers[state] for state in ("parsed", "partial", "failed")},
            "left_out": pool.failures,
            "dropped": dict(pool.dropped.most_common()),
            "examples": pool.examples,
        }


def query_llm_oracle(
    name: str, llm: LLMConfig, consulting: OraclePrompts, seed: int, folder: Path
) -> tuple[Descriptions, dict[str, Any]]:
    """What a model said, from the run folder where it has been asked, else asked now; and what became of it.

    Args:
        name: Of the text model.
        llm: Cache, limit and connection.
        consulting: How often it is asked, and with which questions.
        seed: Of its answers.
        folder: The run folder; a stopped run goes on with the first question that has no answer.
    """
    from cxrlab.evaluation.open_models import open_text_model

    if (folder / ORACLE).is_file():
        told = dict(read_json(folder / ORACLE))
        return _described(told.pop("descriptions")), told
    # Its prompts hold nothing of a corpus.
    shown = [EgressData("the questions to the oracle", synthetic=True)]
    with open_text_model(name, llm, shown, folder / FOLDER, flag="--oracle-llm.connection") as model:
        found, told = ModelOracle(model, consulting, seed).consulted()
        cost = {"paid": model.paid, "found": model.found, "cost": model.budget.spent}
    write_json(folder / ORACLE, {**told, **cost, "descriptions": found.to_json()})
    return found, {**told, **cost}


def _described(rows: dict[str, dict[str, list[str]]]) -> Descriptions:
    abnormal, normal = ({part: tuple(rows[kind][part.value]) for part in Category} for kind in KINDS)
    return Descriptions(abnormal, normal)


BUILT_IN = Path(__file__).parent / "oracle_questions.yaml"
PART, COUNT = "{part}", "{count}"
_KEYS = ("version", "parts", "wordings")


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


State = Literal["parsed", "partial", "failed"]
MOST_WORDS = 60  # a description has a sentence or two
MOST_SENTENCES = 2
_MARKS = r"(?:think|thinking|reasoning|analysis)>"
_THINKING, _THOUGHT = (re.compile(f"<{slash}{_MARKS}", re.IGNORECASE) for slash in ("", "/"))
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_ITEM = re.compile(r"\s*(?:\(?\d{1,3}[.):]|\(?[a-zA-Z][.)]|[-*•–+])\s+(?=\S)")
_LABEL = re.compile(r"(?:\*\*|__)[^*_\n]{1,60}?:?(?:\*\*|__)\s*[:–-]?\s*(?=\S)|[A-Z][\w /,-]{0,40}:\s+(?=[A-Z])")
_REFUSES = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|not able)|i (?:cannot|can['’]?t|will not|won['’]?t)|as an ai\b"
    r"|cannot (?:help|assist))",
    re.IGNORECASE,
)
_BLANK = re.compile(r"\[[^\]\n]*\]|\{[^}\n]*\}|<[^>\n]*>|_{3,}")  # a place that somebody was to fill in
_END = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True)
class ParsedAnswer:
    """What was read in one answer.

    Args:
        state: parsed, partial where something was left out, or failed.
        lines: The descriptions, each with a full stop at its end.
        why: What was left out and why; empty where nothing was.
    """

    state: State
    lines: tuple[str, ...] = ()
    why: str = ""


def parse_descriptions(answer: str) -> ParsedAnswer:
    """The descriptions that an answer lists, in its order; never a guess where it lists none."""
    thoughts = [mark.end() for mark in _THOUGHT.finditer(answer)]  # some templates leave out the opening mark
    text = answer[thoughts[-1] :] if thoughts else answer
    if _THINKING.search(text):
        return ParsedAnswer("failed", why="cut off while thinking aloud")
    text = _unfenced(text).strip()
    if not text:
        return ParsedAnswer("failed", why="empty")
    pieces = _from_json(text)
    if pieces is None:
        pieces = _from_lines(text)
    if isinstance(pieces, str):
        return ParsedAnswer("failed", why=pieces)
    return _cleaned(pieces)


def _unfenced(text: str) -> str:
    """What stands in the first fence, where there is one."""
    found = _FENCED.search(text)
    return found.group(1) if found else text


def _from_json(text: str) -> list[str] | str | None:
    """The texts of a JSON array, or of the arrays of an object; None for an answer that is no JSON."""
    start = re.search(r"[\[{]\s*(?=[\"\[{\]}])", text)
    if start is None or not re.fullmatch(r"[^\n]*:?\s*", text[: start.start()]):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start.start())
    except (json.JSONDecodeError, RecursionError):
        kept = _closed(text[start.start() :])
        return [*kept, ""] if kept else "broken JSON"
    found = list(_texts(value))
    return found if found else "JSON without a list of texts"


def _closed(text: str) -> list[str]:
    """The strings of a JSON text that was cut off, those that were closed; a key of an object is none of them."""
    found, place = [], text.find('"')
    while place >= 0:
        try:
            one, end = scanstring(text, place + 1)
        except json.JSONDecodeError:
            break
        if text[end : end + 20].lstrip()[:1] in (",", "]", "}"):
            found.append(one)
        place = text.find('"', end)
    return found


def _texts(value: Any, depth: int = 0) -> Sequence[str]:
    """Texts in lists; of an object in a list its longest text, of an object around lists what they hold."""
    if depth > 3:
        return []
    if isinstance(value, list):
        return [text for one in value for text in ([one] if isinstance(one, str) else _longest(one, depth))]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one, depth + 1)]
    return []


def _longest(value: Any, depth: int) -> Sequence[str]:
    if isinstance(value, dict) and (texts := [one for one in value.values() if isinstance(one, str)]):
        return [max(texts, key=len)]
    return _texts(value, depth + 1)


def _from_lines(text: str) -> list[str] | str:
    """Items of a list, else lines that are sentences; a sentence of why there are none."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if items := _items(lines):
        return items
    if _REFUSES.search(text):
        return "refused"
    sentences = [line.strip() for line in lines if not line.endswith(":")]
    if not sentences:
        return "nothing but a heading"
    if all(len(_END.findall(line)) > MOST_SENTENCES for line in sentences):
        return "prose, not a list"
    return sentences


def _items(lines: Sequence[str]) -> list[str]:
    """What stands behind numbers and bullets; a line that was only wrapped belongs to the item before it."""
    found: list[str] = []
    for line in lines:
        if match := _ITEM.match(line):
            found.append(line[match.end() :])
        elif found and not _ends(found[-1]) and (line[0].isspace() or line[0].islower()):
            found[-1] += f" {line.strip()}"
    return found


def _cleaned(pieces: Sequence[str]) -> ParsedAnswer:
    """Pieces without marks; those that are no sentence or two are left out and counted by reason."""
    kept: list[str] = []
    left: list[str] = []
    cut = len(pieces) > 1 and not _ends(pieces[-1]) and sum(map(_ends, pieces[:-1])) > len(pieces[:-1]) / 2
    for place, piece in enumerate(pieces):
        text = _plain(piece)
        if reason := "cut off" if cut and place == len(pieces) - 1 else _wrong(text):
            left.append(reason)
        else:
            kept.append(text if _ends(text) else f"{text.rstrip(',;:')}.")
    why = ", ".join(f"{left.count(reason)} {reason}" for reason in dict.fromkeys(left))
    if not kept:
        return ParsedAnswer("failed", why=why)
    return ParsedAnswer("partial" if left else "parsed", tuple(kept), why)


def _plain(piece: str) -> str:
    text = piece.strip().strip("|").strip()
    text = re.sub(r"[*`]+|__", "", _LABEL.sub("", text, count=1))
    text = " ".join(text.split()).strip("\"“”'").rstrip(",").strip("\"“”'").strip()
    return text[:1].upper() + text[1:]


def _wrong(text: str) -> str | None:
    words = text.split()
    if not any(letter.isalpha() for letter in text):
        return "without a word"
    if _REFUSES.search(text):
        return "refused"
    if text.endswith("?"):
        return "a question"
    if _BLANK.search(text):
        return "with a place to fill in"
    if len(words) > MOST_WORDS or len(_END.findall(text)) > MOST_SENTENCES:
        return "too long"
    return None


def _ends(text: str) -> bool:
    return text.rstrip().rstrip("\"“”'*`_,|").endswith((".", "!", "?"))
