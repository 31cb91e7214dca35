"""Sample several reports per study, in a run folder: the candidates for a judge.

    candidates.jsonl   one `Prediction` per study, in the order of the corpus, with every sample under `answers`
    summary.json       their number, diversity and length
    batch.json         only where a batch did not fit in memory: the smaller one that was used

A stopped run continues at the study where it stopped and ends with the same bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.core.egress import connection_operational_fields
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import nan_if_none
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.plan import Plan, Work, count_lines
from cxrlab.core.records import Prediction
from cxrlab.core.runs import Run, finished, progress
from cxrlab.core.terminal import NoticeStream
from cxrlab.core.workers import Engine, Workers, open_workers
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import (
    ANSWERS_KEY,
    SUMMARY,
    Images,
    MissingReport,
    ReportGenerator,
    caution_context,
    check_context,
    generate_predictions,
    missing_reports_error,
    read_cache,
    select_studies,
    try_longest_indication,
)
from cxrlab.evaluation.generation_plan import time_generation
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.shared_generation import ReportWorker, SharedGenerator
from cxrlab.models.decoding import Decoding, SupportsDecoding, SupportsSamplesAndGreedy
from cxrlab.preference.candidate_files import CANDIDATES, candidates_of, same_text, word_count
from cxrlab.preference.config import SampleConfig

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Contexts, Generated, Image, ImageToText

OPERATIONAL = (
    "batch_size",
    "allow_missing",
    *connection_operational_fields("loading.connection"),
)  # settings that may change when a run is continued
GREEDY = "greedy"  # marks the greedy report


@dataclass(frozen=True)
class Sampling:
    """Summary of a run of `prefer sample`."""

    model: str  # name of the model
    split: str  # which split
    studies: int  # studies requested
    candidates: int  # reports generated
    distinct: int  # those that differ from the others of their study in more than case and white space
    truncated: int  # those that were cut at max_new_tokens, which are never chosen in a pair
    mean_words: float  # mean words per candidate; NaN without candidates
    # Mean over the candidates of their mean token log-probability at temperature 1; NaN when the model does not report
    # it.
    mean_logprob: float
    missing: tuple[MissingReport, ...] = ()  # studies without candidates
    cache: str | None = None  # as in `Generation`


class Sampler(ReportGenerator):
    """A model that samples several reports per image, with the greedy report after them where `greedy` is set."""

    def __init__(self, model: ImageToText, decoding: Decoding, *, greedy: bool = False) -> None:
        if not isinstance(model, SupportsDecoding):
            raise ConfigError(
                f"'{model.name}' cannot sample several reports for one image; name a model with weights, such as "
                "hf:runs/finetune/checkpoint or builtin:reporter."
            )
        super().__init__(model, decoding)
        self._likeliest = Decoding(max_new_tokens=decoding.max_new_tokens) if greedy else None

    def generate(self, images: Sequence[Image], indications: Contexts) -> list[list[Generated]]:
        """The samples for each image, in the order of the draws, then the greedy report."""
        if self._likeliest is None or not images:
            return super().generate(images, indications)
        if isinstance(self.model, SupportsSamplesAndGreedy):
            found = self.model.samples_and_greedy(images, indications, self.decoding)
        else:
            assert isinstance(self.model, SupportsDecoding)
            likeliest = self.model.answers(images, indications, self._likeliest)
            found = [drawn + one for drawn, one in zip(super().generate(images, indications), likeliest, strict=True)]
        return [[*drawn, replace(one, extra={**one.extra, GREEDY: True})] for *drawn, one in found]


def sample(config: SampleConfig, out: Path, engine: Engine | None = None) -> Sampling:
    """Sample reports for every study of a split into RUN/candidates.jsonl.

    A study whose image is missing or unreadable, or that the model always refuses, gets no candidate. It is listed in
    RUN/summary.json, and an error with the count is raised after all others are written, unless `allow_missing` is set.

    Args:
        out: Run folder; a stopped run continues, a finished one with the same settings is left as it is.
        engine: Share the batches among workers; the files are those of one process.
    """
    if engine is not None:
        engine.check_local(config.model)
    with open_workers(partial(open_sampling_worker, config), engine) as workers:
        return _sample(config, out, workers)


def open_sampling_worker(config: SampleConfig) -> ReportWorker:
    """The worker of a run of `prefer sample`."""
    _, writer, images = _prepare(config)
    assert isinstance(writer, Sampler)
    return ReportWorker(writer, images)


def _sample(config: SampleConfig, out: Path, workers: Workers | None) -> Sampling:
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        stored = read_json(out / SUMMARY)
        means = {name: nan_if_none(stored[name]) for name in ("mean_words", "mean_logprob")}
        return Sampling(**{**stored, **means, "missing": tuple(MissingReport(**one) for one in stored["missing"])})
    ids, writer, images = _prepare(config, workers)  # before the run folder is made
    if len(ids) > config.batch_size and not (out / CANDIDATES).exists():
        try_longest_indication(writer, images, ids)
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        batch_size = BatchSize(config.batch_size, out)
        missing = generate_predictions(run, CANDIDATES, writer, images, ids, batch_size, "sampling reports")
        summary = replace(_summarise(run.path(CANDIDATES), config, len(ids), missing), cache=read_cache(writer.model))
        run.write(SUMMARY, summary)
        if missing and not config.allow_missing:
            raise missing_reports_error(missing, len(ids), out / SUMMARY, context=config.context)
    return summary


def plan_sampling(config: SampleConfig, out: Path | None = None) -> Plan:
    """Sample reports for two batches of the run and discard them; requests to a model elsewhere are counted, not sent.

    Args:
        out: A run folder that may hold a part of the run already.
    """
    state = progress(out, config, seed=config.seed, operational=OPERATIONAL)
    if state == "finished":
        return Plan("prefer sample", ())
    done = count_lines(out, CANDIDATES) if state == "begun" else 0
    ids, writer, images = _prepare(config)
    assert isinstance(writer, Sampler)
    each = config.answers + config.greedy
    if writer.model.capabilities.black_box:
        most = config.max_new_tokens * each * (len(ids) - done)
        work = Work("candidates", "request", each * len(ids), done=each * done, answer_tokens=most)
        return Plan("prefer sample", (work,), left_out=("tokens of prompts and images, which the server counts.",))
    timed = time_generation(writer, images, ids, config.batch_size, config.seed)
    facts = {"candidates_per_study": each, "batch": timed.batch_size, "key-value_cache": read_cache(writer.model)}
    note = f"longer reports elsewhere in the split take longer than the {timed.studies:,} that were measured."
    work = timed.work("studies with their candidates", len(ids), done, unit="study")
    return Plan("prefer sample", (work,), facts=facts, left_out=(note, "loading the model."))


def _prepare(
    config: SampleConfig, workers: Workers | None = None
) -> tuple[list[str], Sampler | SharedGenerator, Images]:
    """The studies, the sampler and the inputs of a run; whatever can be refused is refused here."""
    corpus = load_corpus(config.data)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    writer: Sampler | SharedGenerator
    if workers is None:
        model = open_model(config.model, config.loading, [corpus.egress_data])
        writer = Sampler(model, config.decoding, greedy=config.greedy)
    else:
        workers.start([corpus.egress_data], config.loading.connection.egress_permission)
        writer = SharedGenerator(workers)
    model = writer.model
    check_context(model, config.context)
    if caution := caution_context(model.name, getattr(model, "card", None), config.context):
        NoticeStream(sys.stderr).write(f"caution: {caution}\n")
    return ids, writer, Images(corpus, context=config.context)


def _summarise(file: Path, config: SampleConfig, studies: int, missing: tuple[MissingReport, ...]) -> Sampling:
    count = distinct = truncated = words = scored = 0
    logprob = 0.0
    for _, record in read_jsonl(file):
        prediction = Prediction.from_json(record)
        found = candidates_of(prediction)
        reports = [one.report for one in found]
        count += len(found)
        distinct += len(set(map(same_text, reports)))
        words += sum(map(word_count, reports))
        truncated += sum(one.truncated for one in found)
        for answer in prediction.extra.get(ANSWERS_KEY) or [record]:
            if (value := answer.get("confidence", {}).get("mean_logprob")) is not None:
                logprob, scored = logprob + value, scored + 1
    return Sampling(
        model=config.model,
        split=config.split,
        studies=studies,
        candidates=count,
        distinct=distinct,
        truncated=truncated,
        mean_words=words / count if count else math.nan,
        mean_logprob=logprob / scored if scored else math.nan,
        missing=missing,
    )
