"""What a defence costs people who mean no harm: refusals, other words, and the score of what they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.randomness import generator
from cxrlab.extraction.defence.base import Answer, Defence
from cxrlab.extraction.detection.shares import share
from cxrlab.metrics.families import families
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.statistics.paired_tests import paired_differences

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels
    from cxrlab.metrics.tally import Tally

METRICS = ("findings.f1", "findings.f1.full", "rougeL:coco", "errors.significant")


@dataclass(frozen=True, eq=False)
class BenignCase:
    """One benign image with what the undefended model wrote for it.

    Args:
        pair: Reference and the model's report as candidate.
        pixels: The image, uint8 [H, W].
    """

    pair: Pair
    pixels: Pixels


def benign_cost(defence: Defence, cases: Sequence[BenignCase], *, trials: int, seed: int) -> dict[str, Any]:
    """Refusals, changed words and the paired change of each metric.

    Args:
        defence: Each image comes from an account of its own; what a quota costs follows from its use, see `quotas`.
        cases: At least one.
        trials: Bootstrap resamples behind the intervals.
        seed: Of the resamples.

    A refused image is scored as an empty report: whoever sent it has got nothing.
    """
    answers = [
        defence.answer(case.pixels, case.pair.candidate or "", f"benign {number}", number)
        for number, case in enumerate(cases)
    ]
    words = [case.pair.candidate != answer.text for case, answer in zip(cases, answers, strict=True)]
    refused = sum(answer.refused for answer in answers)
    reworded = sum(words) - refused
    return {
        "n": len(cases),
        "refused": asdict(share(refused, len(cases))),
        "reworded": asdict(share(reworded, len(cases))),
        "words": {"before": _mean_words([c.pair.candidate or "" for c in cases]), "after": _mean_words(_kept(answers))},
        "difference": _differences(cases, answers, trials, seed),
    }


def _differences(
    cases: Sequence[BenignCase], answers: Sequence[Answer], trials: int, seed: int
) -> Mapping[str, Mapping[str, Any]]:
    """Defended minus undefended for each metric, with interval and p by patient."""
    before = Batch([case.pair for case in cases])
    after = before.with_candidates(["" if answer.refused else answer.text for answer in answers])
    patients = [case.pair.patient or case.pair.id for case in cases]
    rng = generator(seed, "defence", "benign")
    found = paired_differences(_tallies(before), _tallies(after), patients, trials=trials, resamples=trials, rng=rng)
    kept = ("a", "b", "difference", "low", "high", "p", "patients")
    return {one.metric: {name: getattr(one, name) for name in kept} for one in found}


def _tallies(batch: Batch) -> list[Tally]:
    found = {tally.metric.name: tally for family in families(METRICS) for tally in family.tallies(batch)}
    return [found[name] for name in METRICS]


def _kept(answers: Sequence[Answer]) -> list[str]:
    return [answer.text for answer in answers if not answer.refused]


def _mean_words(texts: Sequence[str]) -> float | None:
    return sum(len(text.split()) for text in texts) / len(texts) if texts else None


def harms(cost: Mapping[str, Any], tolerated: float) -> list[str]:
    """What was measured to harm benign users, in a few words each; empty where nothing was.

    Args:
        cost: What `benign_cost` gave.
        tolerated: Share of refusals that is put up with.

    A metric counts when its whole interval lies on the wrong side of zero, refusals when their interval lies above
    what is tolerated, and the expected refusals of a quota when they do.
    """
    found = []
    if (low := cost["refused"]["low"]) is not None and low > tolerated:
        found.append(f"refuses {cost['refused']['value']:.1%} of benign images")
    quota = cost.get("quota")
    if quota is not None and quota["share_refused"] > tolerated:
        found.append(f"refuses {quota['share_refused']:.1%} of benign requests at the stated use")
    for metric, wrong in (("findings.f1", -1), ("errors.significant", 1)):
        one = cost["difference"][metric]
        ends = [end * wrong for end in (one["low"], one["high"]) if end is not None]
        if len(ends) == 2 and min(ends) > 0:
            found.append(f"{metric} changes by {one['difference']:+.3f}")
    return found
