"""Write a corpus with structured text beside the source's; images are reached through links.

    studies.jsonl             every study of the source; those chosen with text under `structured`
    structuring.jsonl         the outcome, one line per study
    answers.sqlite            answers of the language model, unless they are kept in a file that runs share
    requests.jsonl            its requests, and whether each was paid for or found
    egress_permissions.jsonl  who allowed the reports to be sent to a model that is not on this machine, and why
    notes.jsonl               outcomes as remarks, which the card counts

Studies of a test split pass unchanged. An interrupted run continues, repeats no request and ends with the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.egress import is_address, is_loopback
from cxrlab.core.errors import ConfigError
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.llm_requests import ANSWERS, REQUESTS
from cxrlab.core.model_interfaces import TextModel
from cxrlab.core.records import Study
from cxrlab.core.terminal import track
from cxrlab.data.card import CARD, card_settings
from cxrlab.data.config import StructureConfig
from cxrlab.data.corpus import STUDIES, Corpus
from cxrlab.data.corpus_writer import NOTES, PARTIAL, CorpusWriter
from cxrlab.data.parallel import ordered_map
from cxrlab.data.structuring import by_model
from cxrlab.data.structuring.rules import RULES, structure

OUTCOMES, PERMISSIONS = "structuring.jsonl", "egress_permissions.jsonl"
# Increase it when the rules yield different text than before, so that an older corpus is not continued.
STRUCTURE_VERSION = 2
_OWN = frozenset(
    {STUDIES, CARD, PARTIAL, NOTES, OUTCOMES, PERMISSIONS, ANSWERS, f"{ANSWERS}-journal", REQUESTS, "statistics.json"}
)
# Settings that decide how the work is done, not what comes of it.
_WITHOUT_EFFECT = ("workers", "batch", "llm", "prompt")
_OF_A_MODEL = ("retries", "max_tokens", "seed")
_MOST_IN_WINDOW = 32  # studies passed through for each one of a batch


def structure_corpus(source: Corpus, config: StructureConfig, out: Path, model: TextModel | None = None) -> Corpus:
    """Write a corpus with structured text beside the source's, by rule or by a model, or continue."""
    if out.resolve().is_relative_to(source.path.resolve()):
        raise ConfigError(f"--out {out} lies inside the corpus {source.path}; choose a folder beside it.")
    prompt = by_model.load_prompt(config.prompt) if model is not None else None
    # The card of the source, with what was done to its text.
    with source.file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    idle = _WITHOUT_EFFECT if prompt is not None else (*_WITHOUT_EFFECT, *_OF_A_MODEL)
    settings = {key: value for key, value in card_settings(config).items() if key not in idle}
    if prompt is not None:
        settings["prompt"] = f"{prompt.version} {prompt.digest}"
    made = {"structure_version": STRUCTURE_VERSION, **settings, "of": {"sha256": digest, **source.card.settings}}
    with CorpusWriter(
        out, dataclasses.replace(source.card, settings=made, counts={}, dropped={}, remarks={})
    ) as writer:
        if not writer.complete:
            # What of a corpus folder its studies may point at: everything but its own files and hidden ones.
            names = sorted(entry.name for entry in source.path.iterdir())
            for name in [name for name in names if name not in _OWN and not name.startswith(".")]:
                writer.link(name, source.path / name)
            # Record the permission to send reports to another machine.
            permission = config.llm.connection.egress_permission
            if permission is not None and is_address(config.model) and not is_loopback(config.model):
                record = {"model": config.model, "egress_permission": permission}
                with JsonlAppender(out / PERMISSIONS) as lines:
                    if record not in [known for _, known in read_jsonl(out / PERMISSIONS)]:
                        lines.append(record)
            windows = _windows(source, config, writer)
            done: Generator[_Finished, None, None]
            if model is None or prompt is None:
                done = ordered_map(_by_rules, windows, config.workers)
            else:
                limits = (config.retries, config.max_tokens, config.seed)
                structurer = by_model.ModelStructurer(model, prompt, source.card.name, *limits)
                done = (window.finished(structurer.structure(window.to_structure)) for window in windows)
            with closing(done):
                # Each study after its outcome; an outcome that an earlier run wrote is not written again.
                file = out / OUTCOMES
                each = (one for window in done for one in window)
                with JsonlAppender(file) as lines:
                    there = {str(record.get("id")) for _, record in read_jsonl(file)}
                    for study, outcome in track(
                        each, f"structuring {source.card.name}", total=source.card.counts.get("studies")
                    ):
                        if study.id not in there:
                            lines.append(outcome)
                        writer.add(study, remarks=outcome.counted)
    return writer.finish()


@dataclass(frozen=True)
class _Window:
    """Neighbouring studies, and the ids of those that get structured text."""

    studies: tuple[Study, ...]
    chosen: frozenset[str]

    @property
    def to_structure(self) -> list[Study]:
        return [study for study in self.studies if study.id in self.chosen]

    def finished(self, structured: Sequence[by_model.Structured]) -> _Finished:
        """Every study in order with its outcome, the chosen ones with their text."""
        made = {one.outcome.id: one for one in structured}
        finished: _Finished = []
        for study in self.studies:
            outcome = by_model.Outcome(study.id, by_model.TEST if study.split == "test" else by_model.NOT_CHOSEN)
            if one := made.get(study.id):
                outcome = one.outcome
                study = dataclasses.replace(study, structured={**study.structured, **one.texts}) if one.texts else study
            finished.append((study, outcome))
        return finished


_Finished = list[tuple[Study, by_model.Outcome]]


def _windows(source: Corpus, config: StructureConfig, writer: CorpusWriter) -> Iterator[_Window]:
    """The corpus in windows of `batch` chosen studies, without those that are written; the same in a resumed run."""
    studies: list[Study] = []
    chosen: list[str] = []
    taken = 0
    for study in source.studies():
        studies.append(study)
        wanted = study.split != "test" and config.split in (None, study.split)
        if wanted and (config.limit is None or taken < config.limit):
            chosen.append(study.id)
            taken += 1
        if len(chosen) == config.batch or len(studies) == _MOST_IN_WINDOW * config.batch:
            if not all(one.id in writer for one in studies):
                yield _Window(tuple(studies), frozenset(chosen))
            studies, chosen = [], []
    if not all(one.id in writer for one in studies):
        yield _Window(tuple(studies), frozenset(chosen))


def _by_rules(window: _Window) -> _Finished:
    """A window structured by rule; runs in a worker."""
    structured: list[by_model.Structured] = []
    for study in window.to_structure:
        source = by_model.structuring_source(study)
        if source is None or not source.english:
            result = by_model.NO_TEXT if source is None else by_model.FOREIGN
            structured.append(by_model.Structured({}, by_model.Outcome(study.id, result)))
            continue
        ruled = structure(source.report)
        texts = by_model.present_sections(ruled.report)
        remarks = ((by_model.ADDRESSED,) if source.addressed else ()) + by_model.rule_limitations(ruled)
        outcome = by_model.Outcome(study.id, by_model.BY_RULES, RULES if texts else None, remarks=remarks)
        structured.append(by_model.Structured({RULES: texts} if texts else {}, outcome))
    return window.finished(structured)
