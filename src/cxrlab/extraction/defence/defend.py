"""Every defence in one table: benign cost, what it takes from a copy, and from one made by who knows it.

    benign.jsonl     what the undefended victim writes for benign images
    attacks/…        a whole extraction for each row: none, NAME-plain, NAME-adaptive
    defence.json     the table and the summary for a security reviewer

A stopped run goes on where it stopped; a finished one is left as it is. A defence that changes any finding of a
benign report is refused before anything is attacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.config import config_from, flatten
from cxrlab.core.endpoints import connection_operational_fields, is_address
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.json_values import plain
from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.core.tables import load_reference
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import grey_image
from cxrlab.evaluation.generate import Images, ReportGenerator, generate_predictions, select_studies
from cxrlab.evaluation.open_models import open_model
from cxrlab.evaluation.score_inputs import read_predictions, read_references
from cxrlab.extraction.config import DefenceSettings, DefendConfig, FidelityConfig, PaperDecoding
from cxrlab.extraction.defence.base import Defence, DefendedResponse, SafetyReport, check_on_benign, open_defence
from cxrlab.extraction.defence.defences import Gate, Quota, accounts_needed, benign_share_refused
from cxrlab.extraction.defence.security_summary import METRIC, security_summary
from cxrlab.extraction.defence.watermark import Watermark, fingerprint_of, load_key, watermark_test, with_needs
from cxrlab.extraction.detection.false_alarm_rates import share
from cxrlab.extraction.evasion import Adaptation, rewrite
from cxrlab.extraction.fidelity import compare_surrogates
from cxrlab.extraction.oracles import load_oracle
from cxrlab.extraction.pools import open_pool
from cxrlab.extraction.preflight import (
    THREAT,
    check_address,
    check_data_egress,
    check_permission,
    recorded_authorisation,
    threat_model,
)
from cxrlab.metrics.families import families
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.statistics.paired_tests import paired_differences
from cxrlab.models.decoding import Decoding, SupportsDecoding
from cxrlab.models.load_settings import LoadSettings

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels
    from cxrlab.metrics.tally import Tally

BENIGN, DEFENCE, ATTACKS, COMPARED = "benign.jsonl", "defence.json", "attacks", "compared"
WATERMARK = "watermark"
OPERATIONAL = ("i_am_authorised", *connection_operational_fields("loading.connection"))
Plans = Mapping[str, Adaptation]
"""Of a defence: plain or adaptive → what that attacker does about it."""


def defend(config: DefendConfig, out: Path, attack: Attack | None = None) -> dict[str, Any]:
    """Measure every defence into RUN/defence.json.

    Args:
        config: Settings.
        out: Run folder.
        attack: Makes one attack in a folder and gives its result; the extraction audit when left out.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return dict(read_json(out / DEFENCE))
    config = replace(config, i_am_authorised=recorded_authorisation(out, config.victim, config.i_am_authorised))
    settings = _settings(config)
    attack = attack or audit_attack(config)
    check_address(config.victim, config.i_am_authorised)
    _check_pool(config, settings)
    model = open_model(config.victim, config.loading, [load_corpus(config.data).egress_data])
    permission = check_permission(config.victim, model.capabilities, config.i_am_authorised)
    opened = {name: open_defence(name, settings, config.seed) for name in config.defences}
    plans = {name: _plans(defence, config) for name, (defence, _) in opened.items()}
    for name, adapted in ((name, one) for name, kinds in plans.items() for one in kinds.values()):
        attack_config(config, Plan(name, settings, adapted))  # what the audit would refuse is refused now
    said = attack_config(config, Plan(None, settings)).victim_decoding  # benign users are answered as the attacker is
    writer = ReportGenerator(model, said if isinstance(model, SupportsDecoding) else Decoding())
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        threat = threat_model(config.victim, config.budget, config.price, permission)
        run.write(THREAT, {"victim": config.victim, "threat": threat, "authorised": permission.authorised})
        cases = _cases(run, config, writer)
        for defence, _ in opened.values():
            check_on_benign(defence, [case.pair.candidate or "" for case in cases])
        found = _measured(config, settings, opened, plans, cases, out, attack)
        result = {"victim": config.victim, "authorised": permission.authorised, **found}
        result["summary"] = security_summary(result)
        run.write(DEFENCE, result)
    return dict(plain(result))


def _check_pool(config: DefendConfig, settings: DefenceSettings) -> None:
    """Refuse a pool, or a chest, that may not be sent to the victim, before anything is."""
    if is_address(config.victim):
        asked = attack_config(config, Plan(None, settings, Adaptation(chest=config.chest)))
        pool = open_pool(asked.pool, size=asked.size, seed=asked.seed)
        check_data_egress(asked, pool, load_corpus(config.data))


def _settings(config: DefendConfig) -> DefenceSettings:
    settings = replace(config.settings, benign=config.settings.benign or config.data)
    if settings.benign == config.data and settings.benign_split == config.split:
        raise ConfigError(
            f"settings.benign_split={config.split} sets the gate on the split that it is measured on; name another."
        )
    return settings


def _cases(run: Run, config: DefendConfig, writer: ReportGenerator) -> list[BenignCase]:
    """Benign images with references and what the undefended victim writes; unreadable images are left out."""
    corpus = load_corpus(config.data)
    images = Images(corpus)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    batch_size = BatchSize(config.batch_size, run.folder)
    missing = generate_predictions(run, BENIGN, writer, images, ids, batch_size, "writing benign reports")
    lost = {item.id for item in missing}
    said, references = read_predictions(run.path(BENIGN)).items, read_references(config.data, config.section).items
    cases = []
    for key in (key for key in ids if key not in lost):
        told = references[key]
        pair = Pair(key, told.text, said[key], told.patient, told.findings, told.context)
        cases.append(BenignCase(pair, to_uint8(grey_image(images.image(key)))))
    return cases


def _measured(
    config: DefendConfig,
    settings: DefenceSettings,
    opened: Mapping[str, tuple[Defence, SafetyReport]],
    plans: Mapping[str, Plans],
    cases: list[BenignCase],
    out: Path,
    attack: Attack,
) -> dict[str, Any]:
    folder = out / ATTACKS
    none = attack(Plan(None, settings), folder / "none")
    rows: dict[str, Any] = {}
    for name, (defence, safety) in opened.items():
        cost = benign_cost(defence, cases, trials=config.trials, seed=config.seed)
        if isinstance(defence, Quota):
            cost["quota"] = quota_cost(settings, config.budget)
        attacks = {}
        for kind, adapted in plans[name].items():
            found = attack(Plan(name, settings, adapted), folder / f"{name}-{kind}")
            lost = paired_loss(config, found, none, METRIC, out / COMPARED / f"{name}-{kind}")
            attacks[kind] = {**asdict(adapted), **_found_out(found), "loss": lost, "result": _kept(found)}
        rows[name] = {"safety": asdict(safety), "benign": cost, "harms": harms(cost, config.tolerated)}
        rows[name]["attacks"] = attacks
        if name == WATERMARK:
            rows[name] |= _evidence(config, settings, cases, folder, attacks)
    minimum = {"queries": config.minimum_queries, "studies": config.minimum_studies}
    found = {"n": len(cases), "undefended": _kept(none), "defences": rows, "price": asdict(config.price)}
    return {**found, "minimum": minimum}


def _plans(defence: Defence, config: DefendConfig) -> Plans:
    return {"plain": Adaptation(), **({"adaptive": adaptation(defence, config)} if config.adaptive else {})}


def adaptation(defence: Defence, config: DefendConfig) -> Adaptation:
    """What the attacker who knows a defence does."""
    if isinstance(defence, Gate):
        if config.dress is not None:
            return Adaptation(dress=config.dress, chest=config.chest)
        return Adaptation(probes=config.probes, chest=config.chest)
    if isinstance(defence, Quota):
        return Adaptation(accounts=config.accounts)
    return Adaptation(rewrite=True)


def _found_out(found: Mapping[str, Any]) -> dict[str, Any]:
    """What an attacker that probed has found out, and how many of its queries that took; nothing of another."""
    return {"dress": found["probing"]["dress"], "probing": found["probing"]} if "probing" in found else {}


def quota_cost(settings: DefenceSettings, budget: int) -> dict[str, Any]:
    """Expected share of benign requests that the quota refuses, and how many accounts take its effect away."""
    by_account = {images: benign_share_refused(images, settings.quota) for images in settings.images_per_window}
    total = sum(settings.images_per_window)
    refused = sum(by_account[images] * images for images in settings.images_per_window)
    told = {f"{images:g}": value for images, value in by_account.items()}
    return {
        "answers": settings.quota,
        "by_images_per_window": told,
        "share_refused": refused / total,
        "accounts_needed": accounts_needed(budget, settings.quota, settings.window),
    }


def _kept(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("threat", "method", "budget", "spent", "cost", "refused", "victim", "surrogate", "ratio", "transcript",
             "curve", "predictions")  # fmt: skip
    return {name: found[name] for name in names if name in found}


def _evidence(
    config: DefendConfig, settings: DefenceSettings, cases: list[BenignCase], folder: Path, attacks: Mapping[str, Any]
) -> dict[str, Any]:
    key = load_key(settings.key_file)
    copies = {kind: (folder / f"{WATERMARK}-{kind}", row["result"]) for kind, row in attacks.items()}
    reports = [case.pair.candidate or "" for case in cases]
    return {"key_sha256": fingerprint_of(key), "evidence": watermark_evidence(reports, key, copies, config.seed)}


# The audit itself imports defences for its victim; so it is looked up only when an attack is made.
FOLDER, PREDICTIONS = "folder", "predictions"  # of a result: its run folder, and the copy's reports in it
EXTRACT, CONFIG = "cxrlab.extraction.audit:extract", "cxrlab.extraction.config:ExtractConfig"


@dataclass(frozen=True)
class Plan:
    """One attack.

    Args:
        defence: What the victim stands behind; None for nothing.
        settings: Of the defence.
        adaptation: What the attacker does about it.
    """

    defence: str | None
    settings: DefenceSettings
    adaptation: Adaptation = Adaptation()


Attack = Callable[[Plan, Path], Mapping[str, Any]]


def audit_attack(config: DefendConfig) -> Attack:
    """Plans as runs of the extraction audit with the attack file of the config; returns the content of its result.

    An attack file that cannot be used is refused here, before anything is asked.
    """

    def attack(plan: Plan, out: Path) -> Mapping[str, Any]:
        # One folder for what the victim writes on the corpus, which is the same in every attack.
        wanted = replace(attack_config(config, plan), victim_run=out.parent / "victim")
        return {**load_reference(EXTRACT)(wanted, out), FOLDER: out}

    attack_config(config, Plan(None, config.settings))
    return attack


def attack_config(config: DefendConfig, plan: Plan) -> Any:
    """The settings of the extraction audit that a plan comes to: the attack file, and what a plan decides."""
    return config_from(load_reference(CONFIG), config.attack, overrides(config, plan))


def overrides(config: DefendConfig, plan: Plan) -> list[str]:
    """The settings of an extraction that a plan decides, as `key=value`."""
    values: dict[str, Any] = {
        "victim": config.victim,
        "data": config.data,
        "surrogate": config.surrogate,
        "method": config.method,
        "pool": config.pool,
        "budget": config.budget,
        "seed": config.seed,
        "i_am_authorised": config.i_am_authorised,
        "defence": plan.defence,
        "dress": plan.adaptation.dress,
        "probes": plan.adaptation.probes,
        "chest": plan.adaptation.chest,
        "rewrite": str(plan.adaptation.rewrite).lower(),
        "accounts": plan.adaptation.accounts,
        "price.per_query": config.price.per_query,
        "price.per_1k_tokens": config.price.per_1k_tokens,
        "price.currency": config.price.currency,
    }
    if plan.defence is not None:
        names = ("benign", "benign_split", "benign_images", "gate_bound", "quota", "window", "key_file")
        values |= {f"defence_settings.{name}": getattr(plan.settings, name) for name in names}
    values |= _changed("loading", config.loading, LoadSettings())
    values |= _changed("victim_decoding", config.decoding, PaperDecoding())
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def _changed(name: str, given: Any, usual: Any) -> dict[str, Any]:
    """How the victim is loaded or writes, where that was said; the attack file has its say on the rest."""
    had = flatten(asdict(usual))
    told = {key: value for key, value in flatten(asdict(given)).items() if value != had[key]}
    return {f"{name}.{key}": str(value).lower() if isinstance(value, bool) else value for key, value in told.items()}


def paired_loss(
    config: DefendConfig, defended: Mapping[str, Any], open_: Mapping[str, Any], metric: str, out: Path
) -> dict[str, Any]:
    """The same as `loss`, study by study where the reports of both copies are at hand.

    Args:
        config: Settings.
        defended: Result of the attack behind the defence, with its `FOLDER`.
        open_: The same without a defence.
        metric: Its name.
        out: Run folder of the comparison.
    """
    found = loss(defended, open_, metric)
    if not all(FOLDER in one and one.get(PREDICTIONS) for one in (defended, open_)):
        return {**found, "paired": False}
    runs = {name: one[FOLDER] / one[PREDICTIONS] for name, one in (("without", open_), ("with", defended))}
    settings = FidelityConfig(metrics=(metric,), section=config.section, seed=config.seed)
    gap = compare_surrogates(runs, config.data, out, settings)["difference"]["with"][metric]
    return {**found, **{key: gap[key] for key in ("difference", "low", "high", "p")}, "paired": True}


def loss(defended: Mapping[str, Any], open_: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """What a defence takes from the copy: its score behind the defence minus its score without.

    Args:
        defended: Value with its ends of the copy made behind the defence.
        open_: The same without a defence.
        metric: Its name.

    The interval is made of the ends of both and is wider than a paired one: what lies outside zero here would there.
    """
    one, two = defended["surrogate"].get(metric) or {}, open_["surrogate"].get(metric) or {}
    ends = [one.get("low"), one.get("high"), two.get("low"), two.get("high")]
    known = one.get("value") is not None and two.get("value") is not None
    whole = known and None not in ends
    return {
        "metric": metric,
        "with": one.get("value"),
        "without": two.get("value"),
        "difference": one["value"] - two["value"] if known else None,
        "low": one["low"] - two["high"] if whole else None,
        "high": one["high"] - two["low"] if whole else None,
        "n": one.get("n"),
    }


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
        "words": {
            "before": _mean_words([c.pair.candidate or "" for c in cases]),
            "after": _mean_words(_answered_texts(answers)),
        },
        "difference": _differences(cases, answers, trials, seed),
    }


def _differences(
    cases: Sequence[BenignCase], answers: Sequence[DefendedResponse], trials: int, seed: int
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


def _answered_texts(answers: Sequence[DefendedResponse]) -> list[str]:
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


def watermark_evidence(
    reports: Sequence[str], key: bytes, copies: Mapping[str, tuple[Path, Mapping[str, Any]]], seed: int
) -> dict[str, Any]:
    """The test on every kind of text.

    Args:
        reports: What the unmarked model wrote for benign images.
        key: The secret.
        copies: Attack → its run folder and result.
        seed: Of the oracle and of the other words.
    """
    marked = [Watermark(key).worded(report) for report in reports]
    told = {
        "unmarked": watermark_test(reports, key),
        "marked": with_needs(marked, key),
        "enriched": with_needs(_enriched(marked, seed), key),
        "reworded": with_needs([rewrite(report, seed) for report in marked], key),
    }
    return {**told, "copies": {name: _of_copy(folder, found, key) for name, (folder, found) in copies.items()}}


def _enriched(reports: Sequence[str], seed: int) -> list[str]:
    """What an attack asks for after it has mixed the oracle's descriptions into reports, with the usual shares."""
    from cxrlab.extraction.rounds import enrich

    descriptions = load_oracle("rules", seed).describe()
    keys = [str(number) for number in range(len(reports))]
    return [one.text for one in enrich(reports, descriptions, seed=seed, keys=keys)]


def _of_copy(folder: Path, found: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    if not found.get(PREDICTIONS):
        return {"p": None, "reason": "the attack does not tell where the reports of the copy are"}
    texts = read_predictions(folder / found[PREDICTIONS]).items.values()
    return with_needs([text for text in texts if text], key)
