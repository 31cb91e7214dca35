"""The attacks themselves: which pictures are asked, round after round.

Attacking code stands in this file and below, and all it gets of the victim is a desk: pictures in, words out. Every
round is planned on disk before its first question, so that a stopped audit asks the very same pictures again.

    rounds/K/plan.jsonl     one line a picture: key, sha256 and, where it was moved, towards what
    rounds/K/transcript/    what the surrogate of this round learnt from
    rounds/K/fit/           that surrogate
    rounds/K/enrichment.json   who spoke how often in the enriched reports, and the words shared with the victim's
    unreadable.json         pictures of the pool that could not be read
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cxrlab.core.files import make_folder, read_json, write_bytes, write_json, write_text
from cxrlab.core.image_codec import encode_png
from cxrlab.core.json_values import dumps
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.memory import BatchSize
from cxrlab.data.images import as_uint8, read_picture
from cxrlab.extraction.ada_steal import Enriched, enrich, enrichment_summary, keep_own_reports
from cxrlab.extraction.config import NO_ORACLE, TRANSCRIPT, ExtractConfig
from cxrlab.extraction.oracles import Descriptions, load_oracle, shared_vocabulary, transcript_descriptions
from cxrlab.extraction.records import PICTURES, Picture, Query, fingerprint
from cxrlab.extraction.surrogate import EmptyTranscript, write_transcript

if TYPE_CHECKING:
    from cxrlab.extraction.ada_steal import EncoderGuide
    from cxrlab.extraction.pools import Pool
    from cxrlab.extraction.surrogate import Learner

PLAN, ROUNDS, UNREADABLE, ENRICHMENT = "plan.jsonl", "rounds", "unreadable.json", "enrichment.json"
PlannedImage = tuple[Picture, dict[str, Any]]
"""A picture, and what its plan says of it."""


class BlackBox(Protocol):
    """All that attacking code gets of a victim."""

    @property
    def left(self) -> int:
        """Pictures that may still be asked."""
        ...

    def ask(self, pictures: Sequence[Picture], round: int, first: int) -> list[str]:
        """The victim's words on each picture, in order; `first` is the number of the first of them."""
        ...


@dataclass(frozen=True)
class Attack:
    """Everything an attack works with.

    Args:
        desk: Pictures in, words out.
        pool: Pictures to ask with.
        learner: Makes surrogates; asked by ada-steal and by an adaptive policy alone.
        config: Settings.
        folder: The run folder.
        guide: What moves pictures in place of a surrogate, where the settings name an encoder.
        descriptions: What a language model said, where it is the oracle.
    """

    desk: BlackBox
    pool: Pool
    learner: Learner
    config: ExtractConfig
    folder: Path
    guide: EncoderGuide | None = None
    descriptions: Descriptions | None = None

    def shares(self) -> list[int]:
        """Queries of each round; the first rounds take what does not divide evenly."""
        rounds = self.config.rounds if self.config.method == "ada-steal" else 1
        each, rest = divmod(self.config.budget, rounds)
        return [each + (number < rest) for number in range(rounds)]

    def place(self, round: int) -> Path:
        """Folder of a round."""
        return self.folder / ROUNDS / str(round)


def run_attack(attack: Attack) -> list[Query]:
    """Ask until the budget is spent; returns what was asked and answered, in order."""
    if attack.config.method == "none":
        return []
    if attack.config.method == "ada-steal":
        return _ada_steal(attack)
    if attack.config.policy.kind == "adaptive":
        from cxrlab.extraction.knockoff import run_adaptive_knockoff

        return run_adaptive_knockoff(attack)
    return query_round(attack, 0, 0, plan_round(attack, 0, partial(_unmoved, attack)))


def _ada_steal(attack: Attack) -> list[Query]:
    """Fit, enrich, align, ask again; round 0 asks the pool's pictures as they are, unless a guide can move them."""
    told: list[Query] = []
    last: list[Picture] = []
    for round, count in enumerate(attack.shares()):
        if round == 0 and attack.guide is None:
            pictures = plan_round(attack, 0, partial(_unmoved, attack))
        else:
            pictures = plan_round(attack, round, partial(_aligned, attack, round, list(told), last))
        told += query_round(attack, round, len(told), pictures[:count])
        last = pictures
    return told


def _unmoved(attack: Attack) -> list[PlannedImage]:
    """The pictures of the first round, as the pool has them."""
    return [(one, {}) for one in _drawn(attack, 0)]


def _aligned(attack: Attack, round: int, told: list[Query], last: list[Picture]) -> list[PlannedImage]:
    """The pictures of a round, each moved towards its enriched report.

    While the victim has said nothing of an image there is no surrogate to move them by: fresh ones are asked as they
    are. An encoder as guide needs none at any time; what the surrogate would have said stays unsaid.
    """
    from cxrlab.extraction.ada_steal import align_images

    config = attack.config
    surrogate = None if attack.guide else fit_round_surrogate(attack, round, told)
    guide = attack.guide or surrogate
    if guide is None:
        return [(one, {}) for one in _drawn(attack, round)]
    pictures = _before_move(attack, round, last)
    batch_size = BatchSize(config.alignment.batch_size, attack.folder, "alignment.batch_size")
    own = surrogate_reports(surrogate, pictures, config, batch_size)
    descriptions = attack.descriptions or _descriptions(config, told)
    enriched = _enriched(own, [one.key for one in pictures], descriptions, config, round)
    spoken = shared_vocabulary(descriptions, [query.report for query in told]) if descriptions else None
    make_folder(attack.place(round))
    write_json(attack.place(round) / ENRICHMENT, {**enrichment_summary(enriched), "vocabulary": spoken})
    moved, how = align_images(
        guide, pictures, [one.text for one in enriched], config.alignment, seed=config.seed, round=round,
        batch_size=batch_size,
    )  # fmt: skip
    del surrogate, guide
    gc.collect()
    notes = [{"from": p.key, "target": e.to_json(), "own": o, **h} for p, e, o, h in
             zip(pictures, enriched, own, how, strict=True)]  # fmt: skip
    return list(zip(moved, notes, strict=True))


def _descriptions(config: ExtractConfig, told: Sequence[Query]) -> Descriptions | None:
    if config.oracle == NO_ORACLE:
        return None
    if config.oracle == TRANSCRIPT:
        return transcript_descriptions([query.report for query in told], load_oracle("rules", config.seed).describe())
    return load_oracle(config.oracle, config.seed).describe()


def _enriched(
    own: Sequence[str], keys: Sequence[str], descriptions: Descriptions | None, config: ExtractConfig, round: int
) -> list[Enriched]:
    if descriptions is None:
        return keep_own_reports(own)
    named = [f"{key}@{round}" for key in keys]  # the round in the name: other draws in every round
    return enrich(own, descriptions, config.shares, seed=config.seed, keys=named)


def _before_move(attack: Attack, round: int, last: list[Picture]) -> list[Picture]:
    count = attack.shares()[round]
    kind = attack.config.alignment.picture
    if kind == "fresh":
        return _drawn(attack, round)
    if kind == "last" and round > 0:
        # Only the mark of the last round goes: a name of the pool may have an @ of its own.
        mark = f"@{round - 1}" if round > 1 or attack.guide else ""
        return [replace(one, key=one.key.removesuffix(mark)) for one in last[:count]]
    return _drawn(attack, 0)[:count]


def _drawn(attack: Attack, round: int) -> list[Picture]:
    """The pool's pictures of a round, dressed where that is asked for."""
    shares = attack.shares()
    return blend_chests(attack, attack.pool.draw(shares[round], skip=sum(shares[:round])))


def blend_chests(attack: Attack, pictures: list[Picture]) -> list[Picture]:
    """Pictures of the pool as they are asked: with a chest blended into them where the settings say so."""
    if not attack.config.dress:
        return pictures
    from cxrlab.extraction.evasion import dress, load_chest

    chest = load_chest(attack.config.chest, attack.config.size) if attack.config.chest else None
    return [replace(one, pixels=dress(one.pixels, attack.config.dress, chest)) for one in pictures]


def fit_round_surrogate(attack: Attack, round: int, told: list[Query]) -> Any:
    """The surrogate of a round, from what was asked before it; None while the victim has said nothing of an image."""
    place = attack.place(round)
    learnt = training_queries(told, attack.config)
    try:
        write_transcript(learnt, attack.folder, place / "transcript", **wording(attack.config))
    except EmptyTranscript:
        return None
    return attack.learner.fit(place / "transcript", place / "fit", between_rounds=True)


def training_queries(told: Sequence[Query], config: ExtractConfig) -> list[Query]:
    """What a surrogate learns from: everything, or the last round alone."""
    if config.transcript == "accumulate" or not told:
        return list(told)
    return [query for query in told if query.round == told[-1].round]


def wording(config: ExtractConfig) -> dict[str, Any]:
    """How answers are told in a transcript."""
    fitting = config.fitting
    return {
        "victim": config.victim,
        "wordings": fitting.wordings,
        "repeats": fitting.repeats,
        "rewrite": config.rewrite,
        "seed": config.seed,
    }


def surrogate_reports(
    surrogate: Any, pictures: Sequence[Picture], config: ExtractConfig, batch_size: BatchSize
) -> list[str]:
    """What the surrogate writes for pictures, in batches; the quickest words, since it only fills in."""
    from cxrlab.models.decoding import Decoding

    if surrogate is None:
        return [""] * len(pictures)
    images = [one.pixels.astype("float32") / 255.0 for one in pictures]
    how = Decoding(max_new_tokens=config.surrogate_decoding.max_new_tokens)
    answers = batch_size.map(images, lambda some: surrogate.answers(some, None, how))
    return [several[0].text for several in answers]


def plan_round(attack: Attack, round: int, make: Callable[[], list[PlannedImage]]) -> list[Picture]:
    """The pictures of a round: those of its plan where there is one, else new ones, which are then its plan.

    Args:
        attack: Whose round.
        round: Which.
        make: () → pictures with their notes.
    """
    file = attack.place(round) / PLAN
    pictures = attack.folder / PICTURES
    if not file.is_file():
        made = make()
        make_folder(file.parent)
        lines = []
        for picture, notes in made:
            name = fingerprint(picture.pixels)
            if not (pictures / f"{name}.png").exists():
                write_bytes(pictures / f"{name}.png", encode_png(picture.pixels))
            lines.append(dumps({"key": picture.key, "sha256": name, "in_domain": picture.in_domain, **notes}))
        _note_unreadable(attack)
        write_text(file, "".join(f"{line}\n" for line in lines))
    return [
        Picture(str(row["key"]), as_uint8(read_picture(pictures / f"{row['sha256']}.png")), row["in_domain"])
        for _, row in read_jsonl(file)
    ]


def _note_unreadable(attack: Attack) -> None:
    """Pictures of the pool that could not be read, with the reason; a resumed audit does not meet them again."""
    file = attack.folder / UNREADABLE
    known = read_json(file) if file.is_file() else {}
    if attack.pool.unreadable:
        write_json(file, {**known, **attack.pool.unreadable})


def query_round(attack: Attack, round: int, first: int, pictures: Sequence[Picture]) -> list[Query]:
    """Ask these pictures; the attacker writes down what it was told."""
    answers = attack.desk.ask(pictures, round, first)
    return [
        Query(first + place, round, one.key, fingerprint(one.pixels), text)
        for place, (one, text) in enumerate(zip(pictures, answers, strict=True))
    ]


def was_aligned(query: Query, config: ExtractConfig) -> bool:
    """Whether its picture was moved before it was asked; moved ones have their round in the name."""
    first = 0 if config.alignment.guide else 1  # before, a name of the pool that ends like that is just a name
    return query.round >= first and query.key.endswith(f"@{query.round}")
