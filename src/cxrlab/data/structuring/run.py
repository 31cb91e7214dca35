"""Write a corpus with structured text beside the source's; images are reached through links.

    studies.jsonl             every study of the source; those chosen with text under `structured` and, where the
                              validator doubts a text, its reasons under `extra.doubts`
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
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from cxrlab.core.egress import is_address, is_loopback
from cxrlab.core.errors import ConfigError
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.llm_requests import ANSWERS, REQUESTS
from cxrlab.core.plan import Work
from cxrlab.core.records import Study
from cxrlab.core.terminal import track
from cxrlab.data.card import CARD, card_settings
from cxrlab.data.config import StructureConfig
from cxrlab.data.corpus import STUDIES, Corpus
from cxrlab.data.corpus_writer import NOTES, PARTIAL, CorpusWriter
from cxrlab.data.parallel import ordered_map, worker_count
from cxrlab.data.structuring import by_model
from cxrlab.data.structuring.by_model import StoresAnswers
from cxrlab.data.structuring.rules import RULES, structure

OUTCOMES, PERMISSIONS = "structuring.jsonl", "egress_permissions.jsonl"
# Increase it when the rules yield different text than before, so that an older corpus is not continued.
STRUCTURE_VERSION = 3
_OWN = frozenset(
    {STUDIES, CARD, PARTIAL, NOTES, OUTCOMES, PERMISSIONS, ANSWERS, f"{ANSWERS}-journal", REQUESTS, "statistics.json"}
)
# Settings that decide how the work is done, not what comes of it.
_WITHOUT_EFFECT = ("workers", "batch", "llm", "prompt", "trial", "max_refusals")
_OF_A_MODEL = ("mode", "retries", "max_tokens", "seed")
# Key of `Study.extra`: maker of a text → what the validator doubts about it.
DOUBTS_KEY = "doubts"
_TIMED = 64  # reports that are structured for a plan


_Item = tuple[Study, str | None]  # a study, and the result of one that gets no text


def structure_corpus(source: Corpus, config: StructureConfig, out: Path, model: StoresAnswers | None = None) -> Corpus:
    """Write a corpus with structured text beside the source's, by rule or by a model, or continue."""
    with _open_writer(source, config, out, model) as writer:
        if not writer.complete:
            with closing(_made(source, config, out, model, writer)) as done:
                # Each study after its outcome; an outcome that an earlier run wrote is not written again.
                file = out / OUTCOMES
                with JsonlAppender(file) as lines:
                    there = {str(record.get("id")) for _, record in read_jsonl(file)}
                    studies = source.card.counts.get("studies")
                    for study, one in track(done, f"structuring {source.card.name}", total=studies):
                        outcome = one.outcome
                        if study.id not in there:
                            lines.append(outcome)
                        writer.add(_with_text(study, one), remarks=outcome.counted)
    return writer.finish()


def _made(
    source: Corpus, config: StructureConfig, out: Path, model: StoresAnswers | None, writer: CorpusWriter
) -> Generator[tuple[Study, by_model.Structured], None, None]:
    """Every study that is not written yet with its text and outcome, in order."""
    items = _items(source, config, writer)
    if model is not None:
        yield from _structurer(source, config, out, model, writer).structured(items)
        return
    batches = iter(lambda: list(islice(items, config.batch)), [])
    with closing(ordered_map(_by_rules, batches, config.workers)) as made:
        for batch in made:
            yield from batch


def write_open_requests(
    source: Corpus, config: StructureConfig, out: Path, model: StoresAnswers, file: Path | None = None
) -> int:
    """Number of requests without a stored answer, which are written for a batch endpoint; the corpus remains unfinished.

    Args:
        file: Gets one line per request; None counts them only.
    """
    writer = _open_writer(source, config, out, model)
    try:
        if writer.complete:
            return 0
        structurer = _structurer(source, config, out, model, writer)
        items = track(
            _items(source, config, writer), f"requests for {source.card.name}", total=source.card.counts.get("studies")
        )
        requests = structurer.open_requests(items)
        return model.write_batch(requests, file)
    finally:
        writer.close()


def plan_structuring(source: Corpus, config: StructureConfig) -> Work:
    """Structuring by rules, timed in one process on a few reports; with a model see `write_open_requests`."""
    chosen = [study for study in source.studies() if study.split != "test" and config.split in (None, study.split)]
    count = len(chosen) if config.limit is None else min(len(chosen), config.limit)
    some = chosen[:: max(1, len(chosen) // _TIMED)][:_TIMED]
    _by_rules([(study, None) for study in some[:1]])  # reads the tables
    start = time.perf_counter()
    _by_rules([(study, None) for study in some])
    each = (time.perf_counter() - start) / max(1, len(some))
    return Work("reports by rules", "report", count, each, measured=len(some), at_once=worker_count(config.workers))


def _open_writer(source: Corpus, config: StructureConfig, out: Path, model: StoresAnswers | None) -> CorpusWriter:
    """The corpus to be written, with its links and the permission to send reports."""
    if out.resolve().is_relative_to(source.path.resolve()):
        raise ConfigError(f"--out {out} lies inside the corpus {source.path}; choose a folder beside it.")
    # The card of the source, with what was done to its text.
    with source.file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    idle = _WITHOUT_EFFECT if model is not None else (*_WITHOUT_EFFECT, *_OF_A_MODEL)
    settings = {key: value for key, value in card_settings(config).items() if key not in idle}
    if model is not None:
        prompt = by_model.load_prompt(config.prompt)
        settings["prompt"] = f"{prompt.version} {prompt.digest}"
    made = {"structure_version": STRUCTURE_VERSION, **settings, "of": {"sha256": digest, **source.card.settings}}
    writer = CorpusWriter(out, dataclasses.replace(source.card, settings=made, counts={}, dropped={}, remarks={}))
    if writer.complete:
        return writer
    try:
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
    except BaseException:
        writer.close()
        raise
    return writer


def _items(source: Corpus, config: StructureConfig, writer: CorpusWriter) -> Iterator[_Item]:
    """Every study that is not written yet."""
    taken = 0
    for study in source.studies():
        result: str | None = by_model.TEST if study.split == "test" else by_model.NOT_CHOSEN
        wanted = study.split != "test" and config.split in (None, study.split)
        if wanted and (config.limit is None or taken < config.limit):
            taken += 1
            result = None
        if study.id not in writer:
            yield study, result


def _structurer(
    source: Corpus, config: StructureConfig, out: Path, model: StoresAnswers, writer: CorpusWriter
) -> by_model.ModelStructurer:
    """The structurer of a run, whose trial counts the reports that are written."""
    trial = by_model.Trial(config.trial, config.max_refusals)
    if (out / OUTCOMES).is_file():
        JsonlAppender(out / OUTCOMES).close()  # removes a line that a kill left incomplete
        for _, record in read_jsonl(out / OUTCOMES):
            if trial.begun == trial.size:
                break
            if record.get("attempts") and str(record.get("id")) in writer:
                trial.begin()
                trial.count((record.get("refused") or [[]])[0], record.get("doubts") or [])
    return by_model.ModelStructurer(
        model,
        by_model.load_prompt(config.prompt),
        source.card.name,
        config.retries,
        config.max_tokens,
        config.seed,
        config.mode,
        config.batch,
        trial,
    )


def _with_text(study: Study, made: by_model.Structured) -> Study:
    """The study with its new text, and with what is doubted about it."""
    if made.texts:
        study = dataclasses.replace(study, structured={**study.structured, **made.texts})
    if made.outcome.doubts:
        doubts = {**study.extra.get(DOUBTS_KEY, {}), made.outcome.by: list(made.outcome.doubts)}
        study = dataclasses.replace(study, extra={**study.extra, DOUBTS_KEY: doubts})
    return study


def _by_rules(items: Sequence[_Item]) -> list[tuple[Study, by_model.Structured]]:
    """Studies structured by rule; runs in a worker."""
    return [(study, _by_rule(study, result)) for study, result in items]


def _by_rule(study: Study, result: str | None) -> by_model.Structured:
    source = by_model.structuring_source(study) if result is None else None
    if source is None or not source.english:
        result = result or (by_model.NO_TEXT if source is None else by_model.FOREIGN)
        return by_model.Structured({}, by_model.Outcome(study.id, result))
    ruled = structure(source.report)
    texts = by_model.present_sections(ruled.report)
    remarks = ((by_model.ADDRESSED,) if source.addressed else ()) + by_model.rule_limitations(ruled)
    outcome = by_model.Outcome(study.id, by_model.BY_RULES, RULES if texts else None, remarks=remarks)
    return by_model.Structured({RULES: texts} if texts else {}, outcome)
