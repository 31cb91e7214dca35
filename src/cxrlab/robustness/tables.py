"""The evidence as columns: for each model and condition one row a study, the same studies in the same order.

A line of evidence is a few hundred bytes of text and names; as columns it is a dozen numbers, and every comparison
afterwards is arithmetic on arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.metrics.tally import Matrix
from cxrlab.robustness.conditions import CLEAN, Condition, parse_condition
from cxrlab.robustness.evidence import ANSWERS, TRUTH, Answer, ImageAnswer, StudyTruth, read_answers, read_truth

NO_REPORT = -1
TRACED = ("linf", "l2", "passes", "broken", "zero_gradients")

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Said:
    """What one model said of N images; not-a-number where it said nothing.

    Args:
        reports: Number of the text in `Evidence.texts`, [N]; -1 where no report was written.
        logprob: Mean log-probability of the tokens written, [N].
        loss: Mean -log p of the reference's tokens, [N].
        probs: Probability of being present for each label, [N, L].
        labels: 1 or 0 for each label as read off the report, [N, L].
    """

    reports: NDArray[np.int64]
    logprob: Matrix
    loss: Matrix
    probs: Matrix
    labels: Matrix

    @property
    def written(self) -> Flags:
        """Where there is a report, [N]."""
        written: Flags = self.reports != NO_REPORT
        return written

    @classmethod
    def nothing(cls, studies: int, labels: int) -> Said:
        """Room for that many studies, nothing said yet."""
        lone, table = np.full(studies, np.nan), np.full((studies, labels), np.nan)
        return cls(np.full(studies, NO_REPORT, np.int64), lone, lone.copy(), table, table.copy())

    def chosen(self, others: Iterable[Said], report: NDArray[np.intp], asked: NDArray[np.intp]) -> Said:
        """For each study the report of one of several and the answers of one of several.

        Args:
            others: Further ones, numbered from 1; this one is 0.
            report: Whose report is taken, [N].
            asked: Whose probabilities are taken, [N].
        """
        every, row = [self, *others], np.arange(len(self.reports))
        return Said(
            np.stack([one.reports for one in every])[report, row],
            np.stack([one.logprob for one in every])[report, row],
            np.stack([one.loss for one in every])[report, row],
            np.stack([one.probs for one in every])[asked, row],
            np.stack([one.labels for one in every])[report, row],
        )

    def only(self, pairs: Flags, studies: Flags) -> Said:
        """The same with some left out: answers beyond `pairs` [N, L], reports beyond `studies` [N]."""
        return Said(
            np.where(studies, self.reports, NO_REPORT),
            np.where(studies, self.logprob, np.nan),
            np.where(studies, self.loss, np.nan),
            np.where(pairs, self.probs, np.nan),
            np.where(studies[:, None], self.labels, np.nan),
        )


@dataclass(frozen=True, eq=False)
class Table:
    """One model under one condition.

    Args:
        model: Its key.
        condition: Under which.
        crafted_on: Key of the model that the images were made for; None where for none.
        image: What it said, [N].
        uint8: What it said of the images rounded to 8 bits; None where it was not asked.
        trace: How the attacks went: name of `TRACED` → [N], not-a-number where nothing is known.
    """

    model: str
    condition: Condition
    crafted_on: str | None
    image: Said
    uint8: Said | None = None
    trace: Mapping[str, Matrix] = field(default_factory=dict)

    @property
    def transferred(self) -> bool:
        """Whether the images were made for another model."""
        return self.crafted_on not in (None, self.model)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All lines of an audit.

    Args:
        studies: In the order of the file, N of them.
        labels: Names of the columns, L of them, in the order of first mention.
        truth: 1 or 0, [N, L]; not-a-number where unknown.
        texts: Each different report once.
        tables: (model, condition, crafted on) → table.
    """

    studies: tuple[StudyTruth, ...]
    labels: tuple[str, ...]
    truth: Matrix
    texts: tuple[str, ...]
    tables: Mapping[tuple[str, str, str | None], Table]

    @property
    def models(self) -> tuple[str, ...]:
        """Keys in order: the one under audit comes first."""
        return tuple(sorted({model for model, _, _ in self.tables}, key=lambda key: (len(key), key)))

    def clean(self, model: str) -> Table:
        """What a model said of the images as they are."""
        return self.tables[model, CLEAN, None]

    def own(self, model: str) -> dict[str, Table]:
        """Condition → table of changed images that were made for this model or for none."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if table.model == model and not table.transferred and table.condition.kind != CLEAN
        }

    def transferred(self, model: str, crafted_on: str) -> dict[str, Table]:
        """Condition → what a model said of images that were made for another."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if (table.model, table.crafted_on) == (model, crafted_on) and table.transferred
        }


def read_evidence(folder: Path) -> Evidence:
    """The evidence of a run folder."""
    return gather(read_truth(folder / TRUTH), read_answers(folder / ANSWERS))


def gather(truths: Iterable[StudyTruth], answers: Iterable[Answer]) -> Evidence:
    """Lines into columns; every condition must hold every study once, and every model its clean images."""
    studies = tuple(truths)
    names = tuple(dict.fromkeys(name for study in studies for name in study.labels))
    place = {study.id: row for row, study in enumerate(studies)}
    if not studies or len(place) < len(studies):
        what = "names a study twice" if studies else "holds no study"
        raise DataError(f"{TRUTH} {what}; every study must stand there once.")
    truth = np.array([[study.labels.get(name, np.nan) for name in names] for study in studies], np.float64)
    texts: dict[str, int] = {}
    fillings: dict[tuple[str, str, str | None], _Filling] = {}
    for answer in answers:
        key = (answer.model, answer.condition, answer.crafted_on)
        if key not in fillings:
            fillings[key] = _Filling(_empty(*key, len(studies), len(names)), _Columns(names, texts), len(studies))
        if answer.study not in place:
            raise DataError(
                f"{ANSWERS} line '{answer.id}': the study '{answer.study}' is not in {TRUTH}; add it there."
            )
        fillings[key].put(place[answer.study], answer)
    tables = {key: filling.table(studies) for key, filling in fillings.items()}
    found = Evidence(studies, names, truth.reshape(len(studies), len(names)), tuple(texts), tables)
    for model in found.models:
        if (model, CLEAN, None) not in tables:
            raise DataError(
                f"{ANSWERS} holds no clean images of the model '{model}'; there is nothing to compare with."
            )
    if not tables:
        raise DataError(f"{ANSWERS} holds no line; run the sweep first.")
    return found


def _empty(model: str, condition: str, crafted_on: str | None, studies: int, labels: int) -> Table:
    nothing = (Said.nothing(studies, labels) for _ in range(2))
    trace = {name: np.full(studies, np.nan) for name in TRACED}
    return Table(model, parse_condition(condition), crafted_on, next(nothing), next(nothing), trace)


class _Columns:
    """Where a label and a text stand."""

    def __init__(self, labels: Iterable[str], texts: dict[str, int]) -> None:
        self._column = {name: number for number, name in enumerate(labels)}
        self._texts = texts

    def put(self, said: Said, row: int, answer: ImageAnswer) -> None:
        """Write one answer into its row; labels whose truth is known of no study have no column."""
        if answer.report is not None:
            said.reports[row] = self._texts.setdefault(answer.report, len(self._texts))
        said.logprob[row] = np.nan if answer.mean_logprob is None else answer.mean_logprob
        said.loss[row] = np.nan if answer.loss is None else answer.loss
        for column, value in self._placed(answer.label_probs):
            said.probs[row, column] = value
        for column, value in self._placed(answer.labels):
            said.labels[row, column] = value

    def _placed(self, values: Mapping[str, float]) -> Iterator[tuple[int, float]]:
        return ((self._column[name], value) for name, value in values.items() if name in self._column)


class _Filling:
    """A table that is being filled."""

    def __init__(self, table: Table, columns: _Columns, studies: int) -> None:
        self._table, self._columns = table, columns
        self._seen = np.zeros(studies, dtype=bool)
        self._rounded = False

    def put(self, row: int, answer: Answer) -> None:
        """One line; a second one for the same image is refused."""
        if self._seen[row]:
            raise DataError(f"{ANSWERS} holds the image '{answer.id}' twice; delete one of the two lines.")
        self._seen[row] = True
        self._columns.put(self._table.image, row, answer.image)
        if answer.uint8 is not None and self._table.uint8 is not None:
            self._rounded = True
            self._columns.put(self._table.uint8, row, answer.uint8)
        if answer.attack is not None:
            for name in TRACED:
                self._table.trace[name][row] = getattr(answer.attack, name)
            if answer.attack.start == answer.attack.end == 0:  # a wish that makes no sense on this image (`WhereAble`)
                self._table.trace["broken"][row] = np.nan

    def table(self, studies: tuple[StudyTruth, ...]) -> Table:
        """The full table; a study that is missing is named."""
        if not self._seen.all():
            gaps = np.flatnonzero(~self._seen)
            where = f"{self._table.condition.text} of model '{self._table.model}'"
            raise DataError(
                f"{ANSWERS}: {where} lacks {len(gaps)} of {len(studies)} studies, such as '{studies[gaps[0]].id}'; "
                "resume the run, since conditions are compared on the same studies."
            )
        traced = any(not np.isnan(column).all() for column in self._table.trace.values())
        uint8 = self._table.uint8 if self._rounded else None
        return replace(self._table, uint8=uint8, trace=self._table.trace if traced else {})
