"""Extraction attacks, round by round: plan the images, query the victim, train a copy, enrich its reports, align images.

Attacking code sees the victim only through `BlackBox`: images in, text out. Every round is planned on disk before its
first query, so that a resumed audit sends the very same images again.

    rounds/K/plan.jsonl     one line per image: key, sha256 and, where it was moved, the target report
    rounds/K/transcript/    training corpus of this round's surrogate
    rounds/K/fit/           that surrogate
    rounds/K/enrichment.json   how often each source was drawn, and the vocabulary shared with the victim
    unreadable.json         images of the pool that could not be read
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.config import ATTACKS, AttackSettings, parse_eps
from cxrlab.attacks.input_transformations import BehindTransformation, parse_transformation
from cxrlab.attacks.objectives import Objective, report_losses
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import make_folder, read_json, write_bytes, write_json, write_text
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.json_values import dumps
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.data.images import read_picture
from cxrlab.extraction.config import NO_ORACLE, SOURCES, TRANSCRIPT, Alignment, ExtractConfig, Shares, Source
from cxrlab.extraction.records import PICTURES, Query, QueryImage, fingerprint
from cxrlab.extraction.report_content import Category, split_by_category
from cxrlab.extraction.rule_oracles import Descriptions, load_descriptions, shared_vocabulary, transcript_descriptions
from cxrlab.extraction.surrogate import EmptyTranscript, write_transcript
from cxrlab.findings.disease_models import mutually_exclusive
from cxrlab.findings.reader import read
from cxrlab.models.decoding import Decoding

if TYPE_CHECKING:
    from cxrlab.extraction.query_pools import Pool
    from cxrlab.extraction.surrogate import Learner
    from cxrlab.models.dual_encoder import DualEncoder

PLAN, ROUNDS, UNREADABLE, ENRICHMENT = "plan.jsonl", "rounds", "unreadable.json", "enrichment.json"
PlannedImage = tuple[QueryImage, dict[str, Any]]
"""An image, and further columns of its row in the plan."""


class BlackBox(Protocol):
    """All that attacking code gets of a victim."""

    @property
    def left(self) -> int:
        """Queries left in the budget."""
        ...

    def query(self, pictures: Sequence[QueryImage], round: int, first: int) -> list[str]:
        """The victim's report on each image, in order; `first` is the query number of the first of them."""
        ...


@dataclass(frozen=True)
class Attack:
    """Everything an attack works with."""

    client: BlackBox  # images in, text out
    pool: Pool  # query images
    learner: Learner  # trains surrogates; used by ada-steal and by an adaptive policy alone
    config: ExtractConfig
    folder: Path  # the run folder
    guide: EncoderGuide | None = None  # encoder whose gradients move images in place of a surrogate's
    descriptions: Descriptions | None = None  # descriptions of a language model, where one is the oracle

    def shares(self) -> list[int]:
        """Queries per round; the first rounds take what does not divide evenly."""
        rounds = self.config.rounds if self.config.method == "ada-steal" else 1
        each, rest = divmod(self.config.budget, rounds)
        return [each + (number < rest) for number in range(rounds)]

    def place(self, round: int) -> Path:
        """Folder of a round."""
        return self.folder / ROUNDS / str(round)


def run_attack(attack: Attack) -> list[Query]:
    """Query the victim until the budget is spent; returns the answered queries in order.

    Knockoff is the case of one round, whose images are sent as the pool has them.
    """
    config = attack.config
    if config.method == "none":
        return []
    if config.method != "ada-steal" and config.policy.kind == "adaptive":
        from cxrlab.extraction.adaptive_knockoff import run_adaptive_knockoff

        return run_adaptive_knockoff(attack)
    queries: list[Query] = []
    previous: list[QueryImage] = []
    for round, count in enumerate(attack.shares()):
        pictures = plan_round(attack, round, partial(next_images, attack, round, list(queries), previous))
        queries += query_round(attack, round, len(queries), pictures[:count])
        previous = pictures
    return queries


def next_images(attack: Attack, round: int, queries: list[Query], previous: list[QueryImage]) -> Iterator[PlannedImage]:
    """The images of a round: train a surrogate on the answers so far, enrich its reports, align images with them.

    Round 0 has no answers and sends the pool's images unmoved, and so does a later round while the victim has stated
    nothing about any image. An encoder as guide needs no surrogate: then every round is moved, and the surrogate's own
    reports are empty.
    """
    config = attack.config
    surrogate = None if attack.guide or round == 0 else fit_round_surrogate(attack, round, queries)
    guide = attack.guide or surrogate
    if guide is None:
        yield from ((picture, {}) for picture in _pool_images(attack, round))
        return

    if config.alignment.picture == "fresh":
        pictures = _pool_images(attack, round)
    elif config.alignment.picture == "last" and round > 0:
        # Only the suffix of the last round is removed: a name of the pool may hold an @ of its own.
        suffix = f"@{round - 1}" if round > 1 or attack.guide else ""
        pictures = [replace(one, key=one.key.removesuffix(suffix)) for one in previous[: attack.shares()[round]]]
    else:
        pictures = _pool_images(attack, 0)[: attack.shares()[round]]

    batch_size = BatchSize(config.alignment.batch_size, attack.folder, "alignment.batch_size")
    own = [""] * len(pictures)
    if surrogate is not None:  # greedy decoding, the fastest: these reports only fill gaps
        greedy = Decoding(max_new_tokens=config.surrogate_decoding.max_new_tokens)
        own = batch_size.map(pictures, partial(_own_reports, surrogate, greedy))

    descriptions = attack.descriptions
    if descriptions is None and config.oracle == TRANSCRIPT:
        rules = load_descriptions("rules", config.seed)
        descriptions = transcript_descriptions([query.report for query in queries], rules)
    elif descriptions is None and config.oracle != NO_ORACLE:
        descriptions = load_descriptions(config.oracle, config.seed)
    vocabulary = None
    if descriptions is None:
        enriched = keep_own_reports(own)
    else:
        names = [f"{one.key}@{round}" for one in pictures]  # the round in the name: other draws in every round
        enriched = enrich(own, descriptions, config.shares, seed=config.seed, keys=names)
        vocabulary = shared_vocabulary(descriptions, [query.report for query in queries])
    make_folder(attack.place(round))
    write_json(attack.place(round) / ENRICHMENT, {**enrichment_summary(enriched), "vocabulary": vocabulary})

    targets = [one.text for one in enriched]
    aligned = align_images(
        guide, pictures, targets, config.alignment, seed=config.seed, round=round, batch_size=batch_size
    )
    for (moved, loss), picture, target, report in zip(aligned, pictures, enriched, own, strict=True):
        yield moved, {"from": picture.key, "target": target.to_json(), "own": report, **loss}
    del surrogate, guide, aligned
    gc.collect()


def _own_reports(surrogate: Any, decoding: Decoding, pictures: Sequence[QueryImage]) -> list[str]:
    images = [one.pixels.astype("float32") / 255.0 for one in pictures]
    return [candidates[0].text for candidates in surrogate.answers(images, indications=None, decoding=decoding)]


def _pool_images(attack: Attack, round: int) -> list[QueryImage]:
    """The pool's images of a round, with a chest blended in where the settings ask for it."""
    shares = attack.shares()
    return blend_chests(attack, attack.pool.draw(shares[round], skip=sum(shares[:round])))


def blend_chests(attack: Attack, pictures: list[QueryImage]) -> list[QueryImage]:
    """Images of the pool as they are sent: with a chest blended into them where the settings ask for it."""
    if not attack.config.blend_chest:
        return pictures
    from cxrlab.extraction.adaptive_attackers import load_chest

    chest = load_chest(attack.config.chest, attack.config.size) if attack.config.chest else None
    return [replace(one, source=partial(_blended, one, attack.config.blend_chest, chest)) for one in pictures]


def _blended(picture: QueryImage, share: float, chest: Any) -> Any:
    from cxrlab.extraction.adaptive_attackers import blend_chest

    return blend_chest(picture.pixels, share, chest)


def fit_round_surrogate(attack: Attack, round: int, queries: list[Query]) -> Any:
    """The surrogate of a round, trained on earlier answers; None while none of them states anything about an image."""
    place = attack.place(round)
    try:
        rows = training_queries(queries, attack.config)
        write_transcript(rows, attack.folder, place / "transcript", **transcript_settings(attack.config))
    except EmptyTranscript:
        return None
    return attack.learner.fit(place / "transcript", place / "fit", between_rounds=True)


def training_queries(queries: Sequence[Query], config: ExtractConfig) -> list[Query]:
    """What a surrogate learns from: all queries, or those of the last round."""
    if config.transcript == "accumulate" or not queries:
        return list(queries)
    return [query for query in queries if query.round == queries[-1].round]


def transcript_settings(config: ExtractConfig) -> dict[str, Any]:
    """Keyword arguments of `write_transcript` that the settings decide."""
    fitting = config.fitting
    return {
        "victim": config.victim,
        "wordings": fitting.wordings,
        "repeats": fitting.repeats,
        "rewrite": config.rewrite,
        "colour": config.colour == "rgb",
        "seed": config.seed,
    }


def plan_round(attack: Attack, round: int, make: Callable[[], Iterable[PlannedImage]]) -> list[QueryImage]:
    """The images of a round: those of its plan on disk if there is one; otherwise `make` draws them and they are saved.

    The plan is written last: without it a resumed audit makes the round again. Pixels are saved one image after the
    other, and read again from the disk.
    """
    file = attack.place(round) / PLAN
    pictures = attack.folder / PICTURES
    if not file.is_file():
        make_folder(file.parent)
        lines = []
        for picture, notes in make():
            pixels = picture.pixels
            name = fingerprint(pixels)
            if not (pictures / f"{name}.png").exists():
                write_bytes(pictures / f"{name}.png", encode_png(pixels))
            lines.append(dumps({"key": picture.key, "sha256": name, "in_domain": picture.in_domain, **notes}))
        if attack.pool.unreadable:  # a resumed audit does not read these images again: earlier ones are kept
            unreadable = attack.folder / UNREADABLE
            known = read_json(unreadable) if unreadable.is_file() else {}
            write_json(unreadable, {**known, **attack.pool.unreadable})
        write_text(file, "".join(f"{line}\n" for line in lines))
    # The folder is shared and paths are made when they are read: there may be a hundred thousand.
    return [
        QueryImage(str(row["key"]), partial(_read_pixels, pictures, row["sha256"]), row["in_domain"], row["sha256"])
        for _, row in read_jsonl(file)
    ]


def _read_pixels(folder: Path, name: str) -> Any:
    path = folder / f"{name}.png"
    pixels = read_picture(path)
    if fingerprint(pixels) != name:  # another image would be sent, and paid for, in its place
        raise DataError(f"{path} was changed after it was planned; restore it, or begin again in another folder.")
    return pixels


def query_round(attack: Attack, round: int, first: int, pictures: Sequence[QueryImage]) -> list[Query]:
    """Query the victim with these images; `first` is the number of the first query."""
    answers = attack.client.query(pictures, round, first)
    return [
        Query(first + place, round, one.key, one.sha256, text)
        for place, (one, text) in enumerate(zip(pictures, answers, strict=True))
    ]


def was_aligned(query: Query, config: ExtractConfig) -> bool:
    """Whether its image was moved before it was sent; the key of a moved image ends with its round."""
    first = 0 if config.alignment.guide else 1  # in earlier rounds an ending like that belongs to the pool's own name
    return query.round >= first and query.key.endswith(f"@{query.round}")


@dataclass(frozen=True)
class Part:
    """One category of an enriched report; the text is empty where the surrogate's own report does not mention it."""

    category: Category
    source: Source
    text: str


@dataclass(frozen=True)
class Enriched:
    """The target report of one image, with one part per category; empty only where every part is."""

    text: str
    parts: tuple[Part, ...]

    def to_json(self) -> dict[str, Any]:
        """The text and category → [source, text], for the run folder."""
        return {"text": self.text, "parts": {part.category.value: [part.source, part.text] for part in self.parts}}


def enrich(
    surrogate_reports: Sequence[str],
    descriptions: Descriptions,
    shares: Shares | None = None,
    *,
    seed: int,
    keys: Sequence[str],
) -> list[Enriched]:
    """The surrogate's reports, enriched by the oracle: one target report for each, in order.

    For each of the five categories of each report a source is drawn independently: an abnormal description, a normal
    one, or the surrogate's own sentences. One draw per report would make whole reports abnormal or normal.

    Args:
        surrogate_reports: An empty one mentions no category.
        shares: Probability of each source; 80, 10 and 10 % when None.
        seed: Of the draws; give another one, or other keys, for another round.
        keys: Unique name of each report. A target depends on seed, name and report alone.
    """
    if len(keys) != len(surrogate_reports) or len(set(keys)) != len(keys):
        raise DataError(
            f"{len(surrogate_reports)} reports came with {len(set(keys))} different keys; give each its own."
        )
    rows = []
    for report, key in zip(surrogate_reports, keys, strict=True):
        rng = generator(seed, "enrich", key)
        own, parts = split_by_category(report), []
        for category in Category:
            source = (shares or Shares()).draw(rng)
            # The second number is drawn for every source, so that other shares leave the later draws as they were.
            u = rng.random()
            options = (own[category],) if source == "own" else descriptions.of(category, source)
            parts.append(Part(category, source, options[int(u * len(options))]))
        rows.append(Enriched(" ".join(part.text for part in parts if part.text), tuple(parts)))
    return rows


def keep_own_reports(surrogate_reports: Sequence[str]) -> list[Enriched]:
    """The surrogate's reports as they are: the attack without an oracle."""
    return [
        Enriched(report, tuple(Part(category, "own", text) for category, text in split_by_category(report).items()))
        for report in surrogate_reports
    ]


def contradictions(report: Enriched) -> int:
    """How often a report contradicts itself.

    Counts observations that it both states and denies, and pairs of stated findings that cannot be on one image. A
    statement that a part is normal as a whole ("the lungs are clear") contradicts nothing here.
    """
    reading = read(report.text)
    present = [finding for finding in reading if finding.present]
    denied = {finding.observation for finding in reading if not finding.present}
    both = len({finding.observation for finding in present} & denied)
    unlike = [pair for pair in combinations(present, 2) if pair[0].observation != pair[1].observation]
    return both + sum(mutually_exclusive(*pair) for pair in unlike)


def enrichment_summary(reports: Sequence[Enriched]) -> dict[str, Any]:
    """What was drawn: `drawn` descriptions for `n` reports, by source; `empty` counts empty parts."""
    parts = [part for report in reports for part in report.parts]
    sources = Counter(part.source for part in parts)
    clashes = [contradictions(report) for report in reports]
    return {
        "n": len(reports),
        "drawn": len(parts),
        "sources": {source: sources[source] for source in SOURCES},
        "empty": sum(not part.text for part in parts),
        "distinct": len({report.text for report in reports}),
        "contradictory": sum(count > 0 for count in clashes),
        "contradictions": sum(clashes),
    }


_REACH = 2.5  # of several steps together, in radii: enough to cross the ball and to turn


class ReportObjective(Objective):
    """Makes the target report of each image likelier (`sign` -1) or less likely (+1) to a surrogate or another guide."""

    name = "enriched"

    def __init__(self, model: Any, reports: Sequence[str], sign: float) -> None:
        self.model, self.reports, self.sign = model, reports, sign

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """`sign` times the guide's loss: a surrogate's mean of −log p over the tokens of the enriched report."""
        return self.sign * report_losses(self.model, images, rows, self.reports, [None] * len(self.reports))

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Never: only the victim's answer shows what a moved image is worth."""
        return torch.zeros(len(rows), dtype=torch.bool)


def align_images(
    model: Any, pictures: Sequence[QueryImage], reports: Sequence[str], settings: Alignment, *, seed: int, round: int,
    batch_size: BatchSize | None = None,
) -> Iterator[tuple[QueryImage, dict[str, float]]]:  # fmt: skip
    """Every image, moved towards (or away from) its target report and rounded to 8 bits, with losses and distance.

    Args:
        model: The surrogate or another guide, with `losses(images, reports, indications)`.
        pictures: uint8 [S, S], or [S, S, 3] in colour, all of one shape.
        reports: Target of each; an image with an empty one stays as it is.
        settings: Radius, steps and direction.
        round: Suffix of the keys of moved images.
        batch_size: Images at once; that of the settings when None.
    """
    if settings.through:
        model = BehindTransformation(model, parse_transformation(settings.through), settings.draws, seed)
    at_once = batch_size or BatchSize(settings.batch_size)
    pairs, size = list(zip(pictures, reports, strict=True)), settings.batch_size
    batches = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    for batch in track(batches, f"moving images, round {round}", len(pairs), size=len):
        yield from at_once.map(batch, partial(_align_batch, model, settings=settings, seed=seed, round=round))


def _align_batch(
    model: Any, pairs: Sequence[tuple[QueryImage, str]], settings: Alignment, seed: int, round: int
) -> list[tuple[QueryImage, dict[str, float]]]:
    found: list[tuple[QueryImage, dict[str, float]]] = [(picture, {}) for picture, _ in pairs]
    places = [place for place, (_, text) in enumerate(pairs) if text.strip()]
    if not places:
        return found
    pixels = np.stack([pairs[place][0].pixels for place in places])
    colour = pixels.ndim == 4
    images = torch.from_numpy(pixels).to(model.device).float().div(255.0)
    images = images.permute(0, 3, 1, 2) if colour else images[:, None]
    if settings.steps == 1:
        attack = ATTACKS.load("fgsm")(AttackSettings(steps=1))
    else:
        step = min(1.0, _REACH / settings.steps)
        attack = ATTACKS.load("pgd")(AttackSettings(steps=settings.steps, step_size=step, random_start=False))
    sign = -1.0 if settings.direction == "towards" else 1.0
    objective = ReportObjective(model, [pairs[place][1] for place in places], sign)
    keys = [pairs[place][0].key for place in places]
    result = attack(objective, images, parse_eps(settings.eps), keys=keys, seed=seed)
    for place, image, before, after, linf in zip(
        places, result.images.cpu().numpy(), result.initial_loss, result.final_loss, result.linf, strict=True
    ):
        picture = pairs[place][0]
        losses = {"before": sign * float(before), "after": sign * float(after), "linf": float(linf)}
        moved = to_uint8(image.transpose(1, 2, 0) if colour else image[0])
        found[place] = QueryImage(f"{picture.key}@{round}", moved, picture.in_domain), losses
    return found


class EncoderGuide:
    """A contrastive encoder of images and texts with the one method of a surrogate that `align_images` needs."""

    def __init__(self, encoder: DualEncoder) -> None:
        if not encoder.pixels.differentiable:
            raise ConfigError(f"{encoder.name} cannot guide images, since no gradient reaches them: "
                              f"{encoder.pixels.reason}")  # fmt: skip
        encoder.model.requires_grad_(False)
        self._encoder = encoder

    @property
    def device(self) -> Any:
        """Where the encoder is."""
        return self._encoder.device

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[str | None]) -> Tensor:
        """1 − cosine of each image [B, 1 or 3, H, W] and its report [B], 0 to 2; differentiable to the pixels."""
        with torch.no_grad():
            targets = self._encoder.text_vectors(reports)
        return 1.0 - (self._encoder.image_vectors(images[:, 0] if images.shape[1] == 1 else images) * targets).sum(
            dim=1
        )
