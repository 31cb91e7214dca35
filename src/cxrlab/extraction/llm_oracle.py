"""The oracle that is a language model: query it for descriptions of chest images, keep those that can be read.

    oracle.json       the model, counts of its answers, and every description that was kept
    oracle/           every request with its answer

The model sees neither an image nor an answer of the victim. An abnormal description must state a finding of its
category that the reader knows; a normal one must mention the category and state no finding. That reader also scores
reports: with `consulting.keep: all` every description is kept, and nothing of the metrics enters the oracle. Answers to
one prompt for all categories, a text file as in the paper, are sorted by the same reader.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.config import read_yaml
from cxrlab.core.egress import EgressData
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json, read_text, write_json
from cxrlab.core.llm_requests import LLMConfig, llm_operational_fields
from cxrlab.core.model_interfaces import TextModel
from cxrlab.core.runs import Run, finished
from cxrlab.extraction.config import ExtractConfig, OracleConfig, OraclePrompts
from cxrlab.extraction.report_content import Category, category_of, distinct, split_by_category, words_of
from cxrlab.extraction.rule_oracles import KINDS, Descriptions, Kind
from cxrlab.findings.reader import read

ORACLE, FOLDER = "oracle.json", "oracle"
REPEATED = "duplicate"
_EXAMPLES = 3  # of dropped descriptions, per reason


def query_llm_oracle(
    name: str, llm: LLMConfig, consulting: OraclePrompts, seed: int, folder: Path
) -> tuple[Descriptions, dict[str, Any]]:
    """The descriptions of a text model and a summary, from the run folder or by querying the model now.

    An interrupted run resumes with the first question that has no answer.
    """
    from cxrlab.evaluation.load_model import open_text_model

    if (folder / ORACLE).is_file():
        summary = dict(read_json(folder / ORACLE))
        rows = summary.pop("descriptions")
        abnormal, normal = ({part: tuple(rows[kind][part.value]) for part in Category} for kind in KINDS)
        return Descriptions(abnormal, normal), summary
    sent = [EgressData("the questions to the oracle", synthetic=True)]  # they hold nothing of a corpus
    with open_text_model(name, llm, sent, folder / FOLDER, flag="--oracle-llm.connection") as model:
        found, summary = describe_with(model, consulting, seed)
        summary |= {"paid": model.paid, "found": model.found, "cost": model.budget.spent}
    write_json(folder / ORACLE, {**summary, "descriptions": found.to_json()})
    return found, summary


def ask_oracle(config: OracleConfig, out: Path) -> dict[str, Any]:
    """Ask an oracle for several attacks, whose `oracle_run` is `out`; returns the summary."""
    operational = llm_operational_fields("oracle_llm")
    asked = (config.oracle, config.oracle_llm, config.consulting, config.seed, out)
    if not finished(out, config, seed=config.seed, operational=operational):
        with Run.open(out, config, seed=config.seed, operational=operational):
            query_llm_oracle(*asked)
    return query_llm_oracle(*asked)[1]


def check_asked(config: ExtractConfig) -> None:
    """Refuse an `oracle_run` that does not hold the answers of this oracle to these questions."""
    if config.oracle_run is None:
        return
    file = config.oracle_run / ORACLE
    if not file.is_file():
        raise DataError(
            f"oracle_run={config.oracle_run} holds no {ORACLE}; leave --oracle-run out to ask the oracle now."
        )
    found, questions = read_json(file), load_questions(config.consulting.questions)
    if (found["model"], found["questions"]["digest"]) != (config.oracle, questions.digest):
        raise DataError(
            f"{file} has answers of {found['model']} to the questions {found['questions']['version']}, not of "
            f"{config.oracle} to {questions.version}; leave --oracle-run out, or name the run of this oracle."
        )


def describe_with(model: TextModel, consulting: OraclePrompts, seed: int = 0) -> tuple[Descriptions, dict[str, Any]]:
    """The descriptions of a text model, and what was queried, kept and dropped, JSON-ready."""
    questions = load_questions(consulting.questions)
    prompts = list(questions.fill_in(consulting.count))
    kept: dict[tuple[Kind, Category], list[str]] = {(kind, category): [] for kind in KINDS for category in Category}
    states, dropped, unread = Counter[str](), Counter[str](), Counter[str]()
    failures: list[dict[str, Any]] = []
    dropped_examples: dict[str, list[str]] = {}
    for turn in range(consulting.times):
        texts = [question.prompt for question in prompts]
        answers = model.complete(texts, max_tokens=consulting.max_tokens, seed=seed + turn)
        for question, answer in zip(prompts, answers, strict=True):
            parsed = parse_descriptions(answer.text)
            states[parsed.state] += 1
            if parsed.why:
                where = {"category": question.category or "all", "kind": question.kind or "both"}
                failures.append({**where, "wording": question.wording, "state": parsed.state, "why": parsed.why})
            for text in parsed.lines:
                place = (question.kind, question.category) if question.kind and question.category else sorted_by(text)
                rows = kept[place] if place else []
                known = {words_of(row) for row in rows}
                reason = REPEATED if words_of(text) in known else misfit(text, place)
                if reason not in (None, REPEATED) and place and consulting.keep == "all":
                    unread[str(reason)] += 1
                    reason = None
                if reason is None:
                    rows.append(text)
                    continue
                dropped[reason] += 1
                if len(few := dropped_examples.setdefault(reason, [])) < _EXAMPLES:
                    few.append(text)
    missing = [f"{kind} {part.value}" for kind in KINDS for part in Category if not kept.get((kind, part))]
    if missing:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common()) or "none"
        raise DataError(
            f"The oracle '{model.name}' gave no usable description for {', '.join(missing)} ({states['failed']} of "
            f"{states.total()} answers could not be read; dropped descriptions: {reasons}); name a stronger model with "
            "--oracle, ask more often with --consulting.times, or give other questions with --consulting.questions."
        )
    descriptions = {kind: {part: distinct(kept[kind, part]) for part in Category} for kind in KINDS}
    found = Descriptions(descriptions["abnormal"], descriptions["normal"])
    return found, {
        "model": model.name,
        "questions": {"version": questions.version, "digest": questions.digest},
        "queries": len(prompts) * consulting.times,
        "answers": {state: states[state] for state in ("parsed", "partial", "failed")},
        "left_out": failures,
        "dropped": dict(dropped.most_common()),
        "kept_unread": dict(
            unread.most_common()
        ),  # with keep: all, descriptions that are not read as what they were asked for
        "examples": dropped_examples,
        "kept": found.counts(),
    }


def sorted_by(text: str) -> tuple[Kind, Category] | None:
    """Kind and category of a description, as it is read; None if it states nothing."""
    reading = read(text)
    if not reading.has_statements:
        return None
    kind: Kind = "abnormal" if any(finding.present for finding in reading) else "normal"
    return kind, next(category for category, sentences in split_by_category(text).items() if sentences)


def misfit(text: str, place: tuple[Kind, Category] | None) -> str | None:
    """Why a description does not fit a kind and category; None if it does."""
    if place is None:
        return "no readable statement"
    kind, category = place
    reading = read(text)
    present = [finding for finding in reading if finding.present]
    if kind == "normal":
        if present:
            return "a finding in a normal description"
        if not reading.has_statements:
            return "no readable statement"
        return None if split_by_category(text)[category] else "other category"
    if not present:
        return "no readable finding"
    return None if any(category_of(one.observation) is category for one in present) else "other category"


BUILT_IN = Path(__file__).parent / "oracle_questions.yaml"
PART, COUNT = "{part}", "{count}"
_KEYS = ("version", "parts", "wordings")


@dataclass(frozen=True)
class Question:
    """A prompt; `wording` is its place in the file, from 1. Without a category and a kind it asks for all."""

    category: Category | None
    kind: Kind | None
    wording: int
    prompt: str


@dataclass(frozen=True)
class Questions:
    """A file of questions."""

    version: str  # name of the wording
    parts: Mapping[Category, str]  # category → the words for it
    wordings: Mapping[Kind, tuple[str, ...]]  # kind → texts with `{part}` and, optionally, `{count}`
    prompt: str = ""  # one prompt for all categories and both kinds, in place of parts and wordings

    @property
    def digest(self) -> str:
        """Of all texts; 12 hexadecimal digits."""
        words = [self.version, *([self.prompt] if self.prompt else [self.parts[category] for category in Category])]
        words += [text for kind in self.wordings for text in (kind, *self.wordings[kind])]
        return hashlib.sha256("\x1f".join(words).encode()).hexdigest()[:12]

    def fill_in(self, count: int) -> Iterator[Question]:
        """Every question, category by category; each asks for `count` descriptions."""
        if self.prompt:
            yield Question(None, None, 1, self.prompt)
            return
        for category in Category:
            for kind in KINDS:
                for number, text in enumerate(self.wordings[kind], 1):
                    prompt = text.replace(COUNT, str(count)).replace(PART, self.parts[category])
                    yield Question(category, kind, number, prompt)


def load_questions(file: Path | None = None) -> Questions:
    """The built-in questions, those of a YAML file of the same form, or one prompt that is a text file (.txt)."""
    path = file or BUILT_IN
    if path.suffix == ".txt":
        return Questions(path.name, {}, {}, _text(read_text(path), str(path)))
    values, _ = read_yaml(path)
    if unknown := [key for key in values if key not in _KEYS]:
        raise ConfigError(f"{path} has the unknown key '{unknown[0]}'.{did_you_mean(str(unknown[0]), _KEYS)} "
                          f"There are: {', '.join(_KEYS)}.")  # fmt: skip
    version = _text(values.get("version"), f"{path}: version")
    parts = _named(values.get("parts"), [category.value for category in Category], f"{path}: parts")
    wordings = _named(values.get("wordings"), list(KINDS), f"{path}: wordings")
    found: dict[Kind, tuple[str, ...]] = {}
    for kind in KINDS:
        place, given = f"{path}: wordings, '{kind}'", wordings[kind]
        found[kind] = tuple(_text(one, place) for one in (given if isinstance(given, list) else [given]))
        for text in found[kind]:
            if text.count(PART) != 1:
                raise ConfigError(f"{place} needs {PART} exactly once in every wording; it stands for the category.")
            for mark in re.findall(r"\{[a-z_]*\}", text):
                if mark not in (PART, COUNT):
                    raise ConfigError(f"{place} holds the unknown placeholder {mark}; there are {PART} and {COUNT}.")
        if not found[kind]:
            raise ConfigError(f"{place} is empty; give at least one wording.")
    texts = {category: _text(parts[category.value], f"{path}: parts, '{category.value}'") for category in Category}
    return Questions(version, texts, found)


def _named(given: Any, names: list[str], place: str) -> Mapping[str, Any]:
    """A mapping with exactly these keys."""
    found = given if isinstance(given, Mapping) else {}
    if wrong := sorted(set(map(str, found)) ^ set(names)):
        raise ConfigError(f"{place} must have exactly the keys {', '.join(names)}; '{wrong[0]}' is missing or unknown.")
    return found


def _text(given: Any, place: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f"{place} must be a text.")
    return given.strip()


State = Literal["parsed", "partial", "failed"]
MOST_WORDS = 60  # a description has a sentence or two
MOST_SENTENCES = 2
PROSE = "prose, read sentence by sentence"
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
# Definitions, such as "A tube … for chest radiographs of ill patients": a report speaks of one image of one patient.
_GENERAL = re.compile(r"\b(?:patients|radiographs|x-rays|films)\b", re.IGNORECASE)
_BLANK = re.compile(r"\[[^\]\n]*\]|\{[^}\n]*\}|<[^>\n]*>|_{3,}")  # a placeholder that was not filled in
_END = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True)
class ParsedAnswer:
    """A parsed answer."""

    state: State  # parsed, partial if something was left out, or failed
    lines: tuple[str, ...] = ()  # the descriptions, each with a full stop at its end
    why: str = ""  # what was left out and why, if anything


def parse_descriptions(answer: str) -> ParsedAnswer:
    """The descriptions that an answer lists, in its order; pieces that are not a sentence or two are left out."""
    thoughts = [mark.end() for mark in _THOUGHT.finditer(answer)]  # some templates leave out the opening mark
    text = answer[thoughts[-1] :] if thoughts else answer
    if _THINKING.search(text):
        return ParsedAnswer("failed", why="cut off within its reasoning")
    if fenced := _FENCED.search(text):
        text = fenced.group(1)
    text = text.strip()
    if not text:
        return ParsedAnswer("failed", why="empty")
    pieces = _json_texts(text)
    left: list[str] = []
    if pieces is None:
        pieces = _listed_lines(text)
        if pieces == PROSE:  # small models write sentences in a row where a list was asked for
            pieces, left = [one for one in re.split(r"(?<=[.!?])\s+", text) if one], [PROSE]
    if isinstance(pieces, str):
        return ParsedAnswer("failed", why=pieces)
    kept: list[str] = []
    cut = len(pieces) > 1 and not _ends(pieces[-1]) and sum(map(_ends, pieces[:-1])) > len(pieces[:-1]) / 2
    for place, piece in enumerate(pieces):
        words = re.sub(r"[*`]+|__", "", _LABEL.sub("", piece.strip().strip("|").strip(), count=1))
        words = " ".join(words.split()).strip("\"“”'").rstrip(",").strip("\"“”'").strip()
        words = words[:1].upper() + words[1:]
        if reason := "cut off" if cut and place == len(pieces) - 1 else _fault(words):
            left.append(reason)
        else:
            kept.append(words if _ends(words) else f"{words.rstrip(',;:')}.")
    counts = Counter(left)
    why = ", ".join(reason if reason == PROSE else f"{counts[reason]} {reason}" for reason in counts)
    if not kept:
        return ParsedAnswer("failed", why=why)
    return ParsedAnswer("partial" if left else "parsed", tuple(kept), why)


def _json_texts(text: str) -> list[str] | str | None:
    """The texts of a JSON array, or of the arrays of an object; an error as a text; None if the answer is not JSON."""
    start = re.search(r"[\[{]\s*(?=[\"\[{\]}])", text)
    if start is None or not re.fullmatch(r"[^\n]*:?\s*", text[: start.start()]):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start.start())
        return list(_texts(value)) or "JSON without a list of texts"
    except (json.JSONDecodeError, RecursionError):
        pass
    # JSON that was cut off: its closed strings, without keys of objects.
    found, text = [], text[start.start() :]
    place = text.find('"')
    while place >= 0:
        try:
            one, end = scanstring(text, place + 1)
        except json.JSONDecodeError:
            break
        if text[end : end + 20].lstrip()[:1] in (",", "]", "}"):
            found.append(one)
        place = text.find('"', end)
    return [*found, ""] if found else "broken JSON"


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Texts in lists; of an object in a list its longest text, of an object around lists the texts in them."""
    if depth > 3:
        return
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one, depth + 1)
    for one in value if isinstance(value, list) else ():
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict) and (texts := [text for text in one.values() if isinstance(text, str)]):
            yield max(texts, key=len)
        else:
            yield from _texts(one, depth + 1)


def _listed_lines(text: str) -> list[str] | str:
    """Items of a list, else lines that are sentences; the reason as a text if there are none."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    items: list[str] = []
    for line in lines:
        if match := _ITEM.match(line):
            items.append(line[match.end() :])
        elif items and not _ends(items[-1]) and (line[0].isspace() or line[0].islower()):
            items[-1] += f" {line.strip()}"  # the rest of a wrapped item
    if items:
        return items
    if _REFUSES.search(text):
        return "refused"
    sentences = [line.strip() for line in lines if not line.endswith(":")]
    if not sentences:
        return "nothing but a heading"
    if all(len(_END.findall(line)) > MOST_SENTENCES for line in sentences):
        return PROSE
    return sentences


def _fault(text: str) -> str | None:
    if not any(letter.isalpha() for letter in text):
        return "without a word"
    if _REFUSES.search(text):
        return "refused"
    if text.endswith("?"):
        return "a question"
    if _GENERAL.search(text):
        return "about images or patients in general"
    if _BLANK.search(text):
        return "with a place to fill in"
    if len(text.split()) > MOST_WORDS or len(_END.findall(text)) > MOST_SENTENCES:
        return "too long"
    return None


def _ends(text: str) -> bool:
    return text.rstrip().rstrip("\"“”'*`_,|").endswith((".", "!", "?"))
