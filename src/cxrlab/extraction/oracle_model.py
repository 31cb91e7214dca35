"""The oracle that is a language model: asked once what chest images can show, believed where its words can be read.

    oracle.json       which model, what became of its answers, and every description that was kept
    oracle/           every request with its answer, see `models.asked_once`

The model sees neither an image nor an answer of the victim. An abnormal description must state a finding of its
category that the reader knows, a normal one must speak of it and state none: what we cannot read we could not measure
either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrlab.core.endpoints import EgressData
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.llm import LLMConfig
from cxrlab.core.protocols import TextModel
from cxrlab.extraction.anatomy import Category, category_of, split_by_category
from cxrlab.extraction.oracle_answers import Told, descriptions_in
from cxrlab.extraction.oracle_questions import Consulting, Question, Questions, load_questions
from cxrlab.extraction.oracles import KINDS, Descriptions, Kind, distinct, words_of
from cxrlab.findings.reader import read

ORACLE, FOLDER = "oracle.json", "oracle"
REPEATED = "said before"
_EXAMPLES = 3  # of what was dropped for one reason


@dataclass
class Pool:
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

    def take(self, question: Question, told: Told) -> None:
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
    consulting: Consulting = Consulting()
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
        pool = Pool()
        for turn in range(self.consulting.times):
            for question, told in zip(asked, self._answers(asked, self.seed + turn), strict=True):
                pool.take(question, told)
        found = pool.descriptions(self.name)
        return found, {**self._told(questions, len(asked), pool), "kept": found.counts()}

    def _answers(self, asked: Sequence[Question], seed: int) -> list[Told]:
        prompts = [question.prompt for question in asked]
        given = self.model.complete(prompts, max_tokens=self.consulting.max_tokens, seed=seed)
        return [descriptions_in(answer.text) for answer in given]

    def _told(self, questions: Questions, asked: int, pool: Pool) -> dict[str, Any]:
        return {
            "model": self.name,
            "questions": {"version": questions.version, "digest": questions.digest},
            "asked": asked * self.consulting.times,
            "answers": {state: pool.answers[state] for state in ("parsed", "partial", "failed")},
            "left_out": pool.failures,
            "dropped": dict(pool.dropped.most_common()),
            "examples": pool.examples,
        }


def consult(
    name: str, llm: LLMConfig, consulting: Consulting, seed: int, folder: Path
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
