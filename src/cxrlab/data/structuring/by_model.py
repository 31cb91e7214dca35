"""A language model as structurer: asked in batches, checked by the findings reader, asked again, then given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cxrlab.core.budget import tokens_of
from cxrlab.core.errors import RunError
from cxrlab.core.protocols import Generated, TextModel
from cxrlab.core.records import Report, Study
from cxrlab.data.structuring.answer import KEYS, BadAnswer, parse
from cxrlab.data.structuring.labelled import has_labels, label_violations, translation_violations
from cxrlab.data.structuring.outcome import (
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
    Structured,
)
from cxrlab.data.structuring.prompt import Prompt
from cxrlab.data.structuring.rules import RULES, Ruled, mend, structure
from cxrlab.data.structuring.source import Source, source_of
from cxrlab.data.structuring.validate import faults, violations


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
        tasks = [_Task(study, source) for study in studies if (source := source_of(study)) is not None]
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
            prompt_tokens, tokens = tokens_of(text, answer)
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
