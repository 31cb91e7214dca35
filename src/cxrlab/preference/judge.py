"""A reward for every candidate report, in a run folder.

    rewards.jsonl   one `JudgedStudy` a study, in the order of the corpus
    inputs.json     SHA-256 of the files that were judged
    summary.json    what the rewards are like, and whether they go with length

Where a language model judges, answers.sqlite and requests.jsonl hold what it was asked and said, see
`models.asked_once`; a block that is judged again asks nothing twice.

Studies are judged in blocks, so that memory does not grow with their number and texts of one block are read once.
A run that was stopped judges its last block again and ends with the same bytes. Exact findings of a corpus are never
looked at: a real corpus has none, and a phantom's would be a judge that nobody else can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.endpoints import EgressData
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.llm import llm_operational_fields
from cxrlab.core.records import Study
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.generate import SUMMARY
from cxrlab.evaluation.open_models import TextModels, UnopenedModel
from cxrlab.evaluation.score_inputs import describe_reports, parse_sections
from cxrlab.metrics.finding_scores import length_controlled
from cxrlab.metrics.pairs import Batch, Pair, wordless
from cxrlab.preference.candidates import Candidate, CandidateFiles, word_count
from cxrlab.preference.config import JudgeConfig
from cxrlab.preference.judges import Judge, Models, Verdict, load_judge
from cxrlab.preference.rewards import (
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
_UNREAD = frozenset({"findings", "masks", "labels", "own_labels", "boxes", "absent_images", "images", "structured"})


@dataclass(frozen=True)
class _Asked:
    """A study before it is judged; `reference` is None where it has no word."""

    id: str
    reference: str | None
    candidates: tuple[Candidate, ...]


def judge(config: JudgeConfig, out: Path) -> Judging:
    """Judge the candidates of every study into RUN/rewards.jsonl.

    Args:
        config: Settings.
        out: Run folder; a stopped run is continued, a finished one with the same settings is left as it is.
    """
    if finished(out, config, seed=config.seed, operational=llm_operational_fields()):
        check_inputs(out)
        return Judging.from_json(read_json(out / SUMMARY))
    candidates, corpus = CandidateFiles(config.candidates), load_corpus(config.data)
    _refuse_strangers(corpus, candidates)
    with TextModels(config.llm, _shown(config, corpus), out) as models:
        # Before the folder is made: a wrong name leaves nothing behind.
        judging, sections = chosen_judge(config, models)
        return _judge(config, out, judging, sections, corpus, candidates)


def _judge(
    config: JudgeConfig,
    out: Path,
    judging: Judge,
    sections: tuple[str, ...],
    corpus: Corpus,
    candidates: CandidateFiles,
) -> Judging:
    with Run.open(out, config, seed=config.seed, operational=llm_operational_fields()) as run:
        keep_inputs(run, digests((*candidates.files, corpus.file)))
        done = run.done(REWARDS)
        blocks = _blocks(corpus, candidates, sections)
        for block in track(blocks, "judging studies", len(candidates), size=len):
            if done.issuperset(study.id for study in block):
                continue
            # A block that was begun is judged whole again: an encoder's last bits depend on the company.
            for judged in _judge_block(judging, block, config.length_control):
                if judged.id not in done:
                    run.append(REWARDS, judged)
        summary = summarize(read_rewards(run.path(REWARDS)), *_told(judging, config.length_control))
        run.write(SUMMARY, summary)
    return summary


def _shown(config: JudgeConfig, corpus: Corpus) -> list[EgressData]:
    return [corpus.egress_data, *(describe_reports(source, corpus.egress_data) for source in config.candidates)]


def chosen_judge(config: JudgeConfig, models: Models = UnopenedModel) -> tuple[Judge, tuple[str, ...]]:
    """The judge of a config and the sections of the reference that it reads; what cannot judge is refused.

    Args:
        config: Settings; neither its candidates nor its corpus are looked at.
        models: Opens language models; left out, the judge is good for a look at its name alone.
    """
    sections = parse_sections(config.section)
    judging = load_judge(config.judge, config.extras, config.seed, models, config.judging)
    if config.length_control:
        _refuse_control(judging)
    return judging, sections


def _refuse_control(judging: Judge) -> None:
    """Refuse to control the length of a judge that gives no reward, or that has done so itself."""
    if judging.pairwise:
        raise ConfigError(f"'{judging.name}' gives no reward that could be divided; leave out --length-control.")
    if "|length:" in judging.signature:
        raise ConfigError(f"'{judging.name}' is length-controlled already; leave out --length-control.")


def _told(judging: Judge, length_control: bool) -> tuple[str, str]:
    """Name and signature of what gave the rewards."""
    if not length_control:
        return judging.name, judging.signature
    return f"{judging.name} (length-controlled)", f"{judging.signature}|length:÷ max(words / reference's words, 1)"


def _refuse_strangers(corpus: Corpus, candidates: CandidateFiles) -> None:
    """Refuse candidates of studies that are not in the corpus, or that are kept for measuring."""
    held = set(corpus.ids("test"))
    strange = [key for key in candidates.ids() if key not in corpus]
    tested = [key for key in candidates.ids() if key in held]
    if strange:
        raise DataError(
            f"{len(strange)} of {len(candidates)} studies are not in {corpus.path} (for example '{strange[0]}' at "
            f"{candidates.place(strange[0])}); name the corpus that the candidates were made from."
        )
    if tested:
        raise DataError(
            f"{len(tested)} of {len(candidates)} studies are of the test split of {corpus.path} (for example "
            f"'{tested[0]}' at {candidates.place(tested[0])}), which is kept for measuring; take them out."
        )


def _blocks(corpus: Corpus, candidates: CandidateFiles, sections: tuple[str, ...]) -> Iterator[list[_Asked]]:
    """Studies with candidates in the order of the corpus; blocks depend on the files alone."""
    block: list[_Asked] = []
    for study in corpus.studies(without=_UNREAD):
        if study.id in candidates:
            block.append(_Asked(study.id, _reference(study, sections), candidates.of(study.id)))
            if len(block) == BLOCK:
                yield block
                block = []
    if block:
        yield block


def _reference(study: Study, sections: tuple[str, ...]) -> str | None:
    texts = [study.sections.section(name) for name in sections] if study.sections else []
    text = " ".join(part for part in texts if part)
    return None if wordless(text) else text


def _judge_block(judging: Judge, block: Sequence[_Asked], length_control: bool) -> Iterator[JudgedStudy]:
    pairs: list[Pair] = []
    groups: list[range] = []
    for study in block:
        groups.append(range(len(pairs), len(pairs) + len(study.candidates)))
        # Without the exact findings, which `Pair` could carry: the reference is its words.
        texts = (one.report for one in study.candidates)
        pairs += [Pair(f"{study.id}#{number}", study.reference, text) for number, text in enumerate(texts)]
    for study, verdict in zip(block, judging.verdicts(Batch(pairs), groups), strict=True):
        yield _judged(study, verdict, length_control)


def _judged(study: _Asked, verdict: Verdict, length_control: bool) -> JudgedStudy:
    reference = study.reference or ""
    candidates = []
    for one, reward, parts in zip(study.candidates, verdict.rewards, verdict.parts, strict=True):
        worth = length_controlled(reward, one.report, reference) if length_control else reward
        candidates.append(RewardedReport(one.report, word_count(one.report), worth, dict(parts), one.truncated))
    return JudgedStudy(study.id, word_count(reference), tuple(candidates), verdict.preferred)
