"""Judge every candidate report and write its reward to a run folder.

    rewards.jsonl   one `JudgedStudy` per study, in the order of the corpus
    inputs.json     SHA-256 of the files that were judged
    summary.json    statistics of the rewards, and their correlation with length

Where a language model judges, answers.sqlite and requests.jsonl hold its requests and answers; a block that is judged
again sends no request twice.

Studies are judged in blocks, which bounds the memory and parses the texts of a block once. A stopped run judges its last
block again and ends with the same bytes. The exact findings of a corpus are never used: real corpora have none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.egress import EgressData
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm_requests import llm_operational_fields
from cxrlab.core.plan import Plan, Work
from cxrlab.core.runs import Run, finished, progress
from cxrlab.core.terminal import track
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.counted_requests import NOTE, CountedModels
from cxrlab.evaluation.generate import SUMMARY
from cxrlab.evaluation.load_model import TextModels, UnopenedModel
from cxrlab.evaluation.score_inputs import describe_reports, parse_sections
from cxrlab.metrics.finding_scores import length_controlled
from cxrlab.metrics.report_pairs import Batch, Pair, wordless
from cxrlab.preference.candidate_files import Candidate, CandidateFiles, word_count
from cxrlab.preference.config import JudgeConfig
from cxrlab.preference.judges import Judge, Models, load_judge
from cxrlab.preference.reward_files import (
    REWARDS,
    JudgedStudy,
    Judging,
    RewardedReport,
    check_inputs,
    digests,
    keep_inputs,
    read_rewards,
    summarize,
)

BLOCK = 256  # studies
_FEW = 64  # studies that are judged to measure
_UNREAD = frozenset({"findings", "masks", "labels", "own_labels", "boxes", "absent_images", "images", "structured"})


@dataclass(frozen=True)
class _Study:
    """A study before it is judged; `reference` is None where it has no word."""

    id: str
    reference: str | None
    candidates: tuple[Candidate, ...]


def judge(config: JudgeConfig, out: Path) -> Judging:
    """Judge the candidates of every study into RUN/rewards.jsonl.

    Args:
        out: Run folder; a stopped run continues, a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed, operational=llm_operational_fields()):
        check_inputs(out)
        return Judging.from_json(read_json(out / SUMMARY))
    candidates, corpus, egress = _inputs(config)
    with TextModels(config.llm, egress, out) as models:
        judging, sections = chosen_judge(config, models)  # before the run folder is made
        with Run.open(out, config, seed=config.seed, operational=llm_operational_fields()) as run:
            keep_inputs(run, digests((*candidates.files, corpus.file)))
            done = run.done(REWARDS)
            blocks = _blocks(corpus, candidates, sections)
            for block in track(blocks, "judging studies", len(candidates), size=len):
                if done.issuperset(study.id for study in block):
                    continue
                # A block that was begun is judged as a whole: an encoder's last bits depend on the other texts.
                for judged in _judge_block(judging, block, config.length_control):
                    if judged.id not in done:
                        run.append(REWARDS, judged)
            name, signature = judging.name, judging.signature
            if config.length_control:
                name += " (length-controlled)"
                signature += "|length:÷ max(words / reference's words, 1)"
            summary = summarize(read_rewards(run.path(REWARDS)), name, signature)
            run.write(SUMMARY, summary)
    return summary


def plan_judging(config: JudgeConfig, out: Path | None = None) -> Plan:
    """Judge a few studies by rules, or count the requests of a language model for all of them.

    Args:
        out: A run folder that may hold a part of the run already.
    """
    state = progress(out, config, seed=config.seed, operational=llm_operational_fields())
    if state == "finished":
        return Plan("prefer judge", ())
    candidates, corpus, egress = _inputs(config)
    models = CountedModels(config.llm, egress)
    judging, sections = chosen_judge(config, models)
    done: set[str] = set()
    if state == "begun" and out is not None and (out / REWARDS).is_file():
        done = {str(line["id"]) for _, line in read_jsonl(out / REWARDS)}
    spent, judged = 0.0, 0
    for number, block in enumerate(_blocks(corpus, candidates, sections)):
        counting = bool(models.names)
        if not counting and number:
            break
        if counting and done.issuperset(study.id for study in block):
            continue
        some = block if counting else block[:_FEW]
        start = time.perf_counter()
        list(_judge_block(judging, some, config.length_control))
        spent, judged = time.perf_counter() - start, len(some)
    facts = {"candidates": sum(len(candidates.of(key)) for key in candidates.ids())}
    if models.names:
        return Plan("prefer judge", tuple(models.work()), facts=facts, left_out=(NOTE,))
    work = Work("studies", "study", len(candidates), spent / max(judged, 1), len(done), measured=judged)
    return Plan("prefer judge", (work,), facts=facts, left_out=("reading the files.",))


def _inputs(config: JudgeConfig) -> tuple[CandidateFiles, Corpus, list[EgressData]]:
    """The candidates, their corpus, and what a language model would receive; wrong studies are refused."""
    candidates, corpus = CandidateFiles(config.candidates), load_corpus(config.data)
    held_out = set(corpus.ids("test"))
    for wrong, what, remedy in (
        ([key for key in candidates.ids() if key not in corpus], f"not in {corpus.path}",
         "; name the corpus that the candidates were made from."),
        ([key for key in candidates.ids() if key in held_out], f"of the test split of {corpus.path}",
         ", which is kept for measuring; take them out."),
    ):  # fmt: skip
        if wrong:
            raise DataError(
                f"{len(wrong)} of {len(candidates)} studies are {what} (for example '{wrong[0]}' at "
                f"{candidates.place(wrong[0])}){remedy}"
            )
    return (
        candidates,
        corpus,
        [corpus.egress_data, *(describe_reports(source, corpus.egress_data) for source in config.candidates)],
    )


def chosen_judge(config: JudgeConfig, models: Models = UnopenedModel) -> tuple[Judge, tuple[str, ...]]:
    """The judge of a config and the sections of the reference that it reads; refuses what cannot judge.

    Without `models`, which opens language models, the judge is good for checking its name alone.
    """
    sections = parse_sections(config.section)
    judging = load_judge(config.judge, config.extras, config.seed, models, config.judging)
    if config.length_control and judging.pairwise:
        raise ConfigError(f"'{judging.name}' gives no reward that could be divided; leave out --length-control.")
    if config.length_control and "|length:" in judging.signature:
        raise ConfigError(f"'{judging.name}' is length-controlled already; leave out --length-control.")
    return judging, sections


def _blocks(corpus: Corpus, candidates: CandidateFiles, sections: tuple[str, ...]) -> Iterator[list[_Study]]:
    """Studies with candidates in the order of the corpus; blocks depend on the files alone."""
    block: list[_Study] = []
    for study in corpus.studies(without=_UNREAD):
        if study.id in candidates:
            texts = [study.sections.section(name) for name in sections] if study.sections else []
            reference = " ".join(part for part in texts if part)
            block.append(_Study(study.id, None if wordless(reference) else reference, candidates.of(study.id)))
            if len(block) == BLOCK:
                yield block
                block = []
    if block:
        yield block


def _judge_block(judging: Judge, block: list[_Study], length_control: bool) -> Iterator[JudgedStudy]:
    pairs: list[Pair] = []
    groups: list[range] = []
    for study in block:
        groups.append(range(len(pairs), len(pairs) + len(study.candidates)))
        # Without the exact findings, which `Pair` could hold.
        texts = (one.report for one in study.candidates)
        pairs += [Pair(f"{study.id}#{number}", study.reference, text) for number, text in enumerate(texts)]
    for study, verdict in zip(block, judging.verdicts(Batch(pairs), groups), strict=True):
        reference, rewarded = study.reference or "", []
        for one, reward, parts in zip(study.candidates, verdict.rewards, verdict.parts, strict=True):
            worth = length_controlled(reward, one.report, reference) if length_control else reward
            rewarded.append(RewardedReport(one.report, word_count(one.report), worth, dict(parts), one.truncated))
        yield JudgedStudy(study.id, word_count(reference), tuple(rewarded), verdict.preferred)
