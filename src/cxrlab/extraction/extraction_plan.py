"""Plan an extraction audit: reports of both sides, queries, fits of surrogates, moved images and scores, each timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.files import write_bytes
from cxrlab.core.image_codec import encode_png
from cxrlab.core.llm_requests import estimate_tokens
from cxrlab.core.plan import Plan, Work, scratch_folder
from cxrlab.core.runs import progress, state
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.counted_requests import request_work
from cxrlab.evaluation.generate import PREDICTIONS, Images, ReportGenerator, select_studies
from cxrlab.evaluation.generation_plan import GenerationTime, time_generation
from cxrlab.evaluation.score_plan import plan_score
from cxrlab.extraction.adaptive_knockoff import FITS
from cxrlab.extraction.attack_rounds import align_images, transcript_settings
from cxrlab.extraction.audit import OPERATIONAL, VICTIM, open_audit
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.fidelity import score_config
from cxrlab.extraction.llm_oracle import load_questions
from cxrlab.extraction.query_ledger import LEDGER, read_ledger
from cxrlab.extraction.records import PICTURES, Query, fingerprint
from cxrlab.extraction.report_content import report_content
from cxrlab.extraction.surrogate import SurrogateTrainer, write_transcript
from cxrlab.models.baselines import REPORTS
from cxrlab.models.decoding import Decoding, decodes_here
from cxrlab.training.training_plan import plan_report_training

if TYPE_CHECKING:
    from cxrlab.extraction.records import QueryImage

_IMAGES = 64  # query images that are drawn to measure; a fit may see the same one several times
_FEW, _MORE = 2, 4  # steps of moving images that are timed


def plan_extraction(config: ExtractConfig, out: Path | None = None) -> Plan:
    """Time every part of an audit on a batch or a few steps; a victim behind an address gets no request.

    Args:
        out: A run folder that may hold a part of the audit already.
    """
    begun = progress(out, config, seed=config.seed, operational=OPERATIONAL)
    if begun == "finished":
        return Plan("extract", ())
    opened = open_audit(config, out)
    corpus = load_corpus(config.data)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    queries = 0 if config.method == "none" else config.budget
    sent = len(read_ledger(out / LEDGER)) if begun == "begun" and out is not None and (out / LEDGER).is_file() else 0
    victim_run = config.victim_run or (out / VICTIM if out is not None else None)
    written = len(ids) if victim_run is not None and state(victim_run) == "finished" else 0
    images, victim = Images(corpus, indications=False), opened.victim
    own_tokens: float | None = None
    if victim.capabilities.black_box:
        most = config.victim_decoding.max_new_tokens
        work = [
            Work("reports of the victim", "request", len(ids), done=written, answer_tokens=most * (len(ids) - written)),
            Work("queries", "request", queries, done=sent, answer_tokens=most * (queries - sent),
                 price=config.price.per_query * (queries - sent) or None),
        ]  # fmt: skip
    else:
        decoding = config.victim_decoding if decodes_here(victim) else Decoding()
        timed = time_generation(ReportGenerator(victim, decoding), images, ids, config.batch_size, config.seed)
        own_tokens = timed.mean_tokens
        work = [
            timed.work("reports of the victim", len(ids), written),
            Work("queries", "query", queries, timed.seconds_each, sent, measured=timed.studies),
        ]
    if config.method == "ada-steal" and config.oracle_is_a_model and config.oracle_run is None:
        prompts = [
            question.prompt for question in load_questions(config.consulting.questions).fill_in(config.consulting.count)
        ]
        times = config.consulting.times
        tokens, answers = (
            sum(map(estimate_tokens, prompts)) * times,
            config.consulting.max_tokens * len(prompts) * times,
        )
        work.append(request_work(config.oracle, len(prompts) * times, tokens, answers, config.oracle_llm))
    fits, copies = _fits(config)
    with scratch_folder() as folder:
        pictures = opened.pool.draw(min(_IMAGES, max(1, queries))) if queries else []
        texts = _reports(corpus, ids)
        training = None
        if fits:
            training = _time_fit(config, opened.learner, fits, pictures, texts, folder)
            work += [replace(one, name=f"{one.name} of {len(fits)} fits") for one in training.work]
        surrogate = _open(opened.learner, folder, corpus)
        greedy = Decoding(max_new_tokens=config.surrogate_decoding.max_new_tokens)
        moved = _moved(config)
        if moved and opened.guide is None:
            timed = time_generation(ReportGenerator(surrogate, greedy), images, ids, config.batch_size, config.seed)
            work.append(_as_long_as(timed, own_tokens, "reports of surrogates between rounds", moved))
        if moved:
            each = _time_moving(config, opened.guide or surrogate, pictures, texts)
            work.append(
                Work("moved images", "image", moved, each, measured=min(len(pictures), config.alignment.batch_size))
            )
        timed = time_generation(
            ReportGenerator(surrogate, config.surrogate_decoding), images, ids, config.batch_size, config.seed
        )
        work.append(_as_long_as(timed, own_tokens, "reports of copies", copies * len(ids)))
        predictions = folder / PREDICTIONS
        lines = (
            f'{{"id": {_json(key)}, "report": {_json(text)}}}\n'
            for key, text in zip(ids, _of(texts, len(ids)), strict=True)
        )
        predictions.write_text("".join(lines))
        scored = plan_score(score_config(predictions, config.data, config.measure))
        seconds = scored.seconds / len(ids)
        work.append(Work("scores of victim and copies", "report", (1 + 2 * copies) * len(ids), seconds))
    return Plan(
        "extract",
        tuple(work),
        estimated_gb=training.estimated_gb if training else None,
        disk_gb=training.disk_gb * len(fits) if training and training.disk_gb else None,
        facts={"fits": len(fits), "copies": copies, "steps_of_all_fits": training.facts["steps"] if training else None},
        left_out=(
            "loading models, drawing images of the pool, the map of sentences, probes, and the intervals of fidelity.",
            "answers that state nothing, which are not learnt: fits are at most as long as stated.",
        ),
    )


def _fits(config: ExtractConfig) -> tuple[list[tuple[int, bool]], int]:
    """Queries of each fit of a surrogate with whether it is between rounds; and the number of copies."""
    if config.method == "none":
        return [], 1
    between: list[int] = []
    if config.method == "ada-steal" and not config.alignment.guide:
        shares = _shares(config)
        last = config.transcript == "replace"
        between = [shares[number - 1] if last else sum(shares[:number]) for number in range(1, config.rounds)]
    elif config.policy.kind == "adaptive" and "loss" in config.policy.rewards and config.method != "ada-steal":
        between = [config.budget * quarter // FITS for quarter in range(1, FITS)]
    final = [*sorted(config.at), config.budget]
    return [*((count, True) for count in between), *((count, False) for count in final)], len(final)


def _shares(config: ExtractConfig) -> list[int]:
    each, rest = divmod(config.budget, config.rounds)
    return [each + (number < rest) for number in range(config.rounds)]


def _moved(config: ExtractConfig) -> int:
    """Images that are moved; the first round has no surrogate yet."""
    if config.method != "ada-steal":
        return 0
    return sum(_shares(config)[0 if config.alignment.guide else 1 :])


def _reports(corpus: Any, ids: Sequence[str]) -> list[str]:
    """References that state something, in place of answers."""
    found = []
    for key in ids[:_IMAGES]:
        sections = corpus[key].sections
        text = sections.findings if sections is not None else None
        if text and report_content(text).has_statements:
            found.append(text)
    return found or [REPORTS["normal"]]


def _of(texts: Sequence[str], count: int) -> list[str]:
    return [texts[number % len(texts)] for number in range(count)]


def _time_fit(
    config: ExtractConfig, learner: SurrogateTrainer, fits: Sequence[tuple[int, bool]],
    pictures: Sequence[QueryImage], texts: Sequence[str], folder: Path,
) -> Plan:  # fmt: skip
    """The plan of the largest fit, with the steps and images of all fits."""
    from cxrlab.training.trainer import Part, plan_steps

    names = []
    for picture in pictures:
        names.append(fingerprint(picture.pixels))
        write_bytes(folder / PICTURES / f"{names[-1]}.png", encode_png(picture.pixels))
    settings = {**transcript_settings(config), "repeats": None}

    def settings_of(count: int, between: bool) -> Any:
        """Settings of a fit on so many answered queries."""
        place = folder / "transcripts" / str(count)
        if not place.is_dir():
            rows = [
                Query(number, 0, str(number), names[number % len(names)], text)
                for number, text in enumerate(_of(texts, count))
            ]
            write_transcript(rows, folder, place, **settings)
        return learner.training_config(place, between_rounds=between)

    steps = images = 0
    for count, between in fits:
        fit = settings_of(count, between)
        samples = count * config.fitting.wordings
        steps += plan_steps([Part(samples)], fit.optimisation, np.zeros(samples, np.int64)).steps
        images += count
    found = plan_report_training("finetune", settings_of(*max(fits)))
    counts = {"step": steps, "image": images}
    work = tuple(replace(one, count=counts[one.unit], once_s=one.once_s * len(fits)) for one in found.work)
    return replace(found, work=work, facts={**found.facts, "steps": steps})


def _open(learner: SurrogateTrainer, folder: Path, corpus: Corpus) -> Any:
    """The surrogate before training."""
    from cxrlab.models.hf.model import HfModel
    from cxrlab.models.model_registry import parse_name

    name = parse_name(learner.untouched(folder / "untouched"))
    if name.kind == "hf":
        return HfModel.load(name.argument, loading=learner.loading)
    from cxrlab.evaluation.load_model import open_model

    return open_model(f"{name.kind}:{name.argument}", learner.loading, [corpus.egress_data])


def _as_long_as(timed: GenerationTime, tokens: float | None, name: str, count: int) -> Work:
    """Reports of a trained surrogate, which are as long as the victim's; those of an untrained one may never end."""
    if tokens and timed.mean_tokens:
        timed = replace(timed, seconds_each=timed.seconds_each * min(1.0, tokens / timed.mean_tokens))
    return timed.work(name, count)


def _time_moving(config: ExtractConfig, guide: Any, pictures: Sequence[QueryImage], texts: Sequence[str]) -> float:
    """Seconds per moved image, from a few steps on one batch."""
    some = pictures[: config.alignment.batch_size]
    if not some:
        raise DataError("no image was drawn.")
    steps = config.alignment.steps

    def seconds(count: int) -> float:
        settings = replace(config.alignment, steps=count)
        start = time.perf_counter()
        list(align_images(guide, some, _of(texts, len(some)), settings, seed=config.seed, round=1))
        return time.perf_counter() - start

    few = seconds(min(_FEW, steps))
    if steps > _FEW:
        more = min(_MORE, steps)
        few += max(0.0, seconds(more) - few) / (more - _FEW) * (steps - _FEW)
    return few / len(some)


def _json(text: str) -> str:
    from cxrlab.core.json_values import dumps

    return str(dumps(text))
