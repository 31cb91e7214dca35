"""`cxrlab defend`: the benign cost of each defence, and how much worse a copy gets with a plain and an adaptive attacker.

    benign.jsonl     reports of the undefended victim for benign images
    benign_NAME.jsonl  reports of the victim behind an input transformation
    attacks/…        one extraction per row: none, NAME-plain, NAME-adaptive
    defence.json     the table and the summary for a security reviewer

A defence whose words change any finding of a benign report is refused before the first attack.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.config import config_from, flatten
from cxrlab.core.egress import connection_operational_fields, is_address
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import to_uint8, to_unit
from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import grey_image
from cxrlab.evaluation.generate import Images, ReportGenerator, generate_predictions, select_studies
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.score_inputs import read_predictions, read_references
from cxrlab.extraction import preflight
from cxrlab.extraction.adaptive_attackers import Adaptation, rewrite
from cxrlab.extraction.config import DefenceSettings, DefendConfig, ExtractConfig, FidelityConfig, PaperDecoding
from cxrlab.extraction.defence.base import Defence, check_on_benign, defended, open_defence
from cxrlab.extraction.defence.defences import Gate, Preprocessing, Quota, accounts_needed, benign_share_refused
from cxrlab.extraction.defence.finding_preservation import difference
from cxrlab.extraction.defence.security_summary import METRIC, security_summary
from cxrlab.extraction.defence.watermark import Watermark, fingerprint_of, load_key, watermark_test, with_needs
from cxrlab.extraction.detection.false_alarm_rates import share
from cxrlab.extraction.fidelity import compare_surrogates
from cxrlab.extraction.query_pools import open_pool
from cxrlab.extraction.rule_oracles import load_descriptions
from cxrlab.metrics.base import families
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.metrics.statistics.intervals import Estimate, unpaired_difference
from cxrlab.metrics.statistics.paired_tests import paired_differences
from cxrlab.models.decoding import Decoding, decodes_here
from cxrlab.models.load_settings import LoadSettings

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels
    from cxrlab.metrics.base import Tally

BENIGN, DEFENCE, ATTACKS, COMPARED = "benign.jsonl", "defence.json", "attacks", "compared"
WATERMARK = "watermark"
OPERATIONAL = ("i_am_authorised", *connection_operational_fields("loading.connection"))


def defend(config: DefendConfig, out: Path, attack: Attack | None = None) -> dict[str, Any]:
    """Measure every defence into RUN/defence.json.

    Args:
        out: Run folder; an interrupted run is resumed, a finished one with the same settings is left as it is.
        attack: Runs one attack in a folder and returns its result; the extraction audit by default.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return dict(read_json(out / DEFENCE))
    # Everything that can be refused is refused before the first query.
    config = replace(
        config, i_am_authorised=preflight.recorded_authorisation(out, config.victim, config.i_am_authorised)
    )
    settings = replace(config.settings, benign=config.settings.benign or config.data)
    if settings.benign == config.data and settings.benign_split == config.split:
        raise ConfigError(
            f"settings.benign_split={config.split} calibrates the gate on the split of its measurement; name another."
        )
    attack = attack or audit_attack(config)
    preflight.check_address(config.victim, config.i_am_authorised)
    if is_address(config.victim):
        query = attack_config(config, Plan(None, settings, Adaptation(chest=config.chest)))
        pool = open_pool(query.pool, size=query.size, seed=query.seed, colour=query.colour == "rgb")
        preflight.check_data_egress(query, pool, load_corpus(config.data))
    model = open_model(config.victim, config.loading, [load_corpus(config.data).egress_data])
    permission = preflight.check_permission(config.victim, model.capabilities, config.i_am_authorised)
    opened = {name: open_defence(name, settings, config.seed) for name in config.defences}
    attackers = attackers_of({name: defence for name, (defence, _) in opened.items()}, config)
    for name, adapted in ((name, one) for name, kinds in attackers.items() for one in kinds.values()):
        attack_config(config, Plan(name, settings, adapted))  # raises for settings that the audit would refuse
    # Benign clients get the same decoding as the attacker.
    decoding = attack_config(config, Plan(None, settings)).victim_decoding
    reporter = ReportGenerator(model, decoding if decodes_here(model) else Decoding())
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        threat = preflight.threat_model(config.victim, config.budget, config.price, permission)
        run.write(preflight.THREAT, {"victim": config.victim, "threat": threat, "authorised": permission.authorised})
        cases = _benign_cases(run, config, reporter)
        for defence, _ in opened.values():
            check_on_benign(defence, [case.pair.candidate or "" for case in cases])
        undefended = attack(Plan(None, settings), out / ATTACKS / "none")
        rows: dict[str, Any] = {}
        for name, (defence, safety) in opened.items():
            behind = None
            if isinstance(defence, Preprocessing):
                behind = _reports_behind(run, config, defence, defended(model, defence), reporter.decoding, cases)
            cost = benign_cost(defence, cases, reports=behind, trials=config.trials, seed=config.seed)
            if isinstance(defence, Quota):
                cost["quota"] = quota_cost(settings, config.budget)
            attacks: dict[str, Any] = {}
            for kind, adapted in attackers[name].items():
                found = attack(Plan(name, settings, adapted), out / ATTACKS / f"{name}-{kind}")
                lost = paired_loss(config, found, undefended, METRIC, out / COMPARED / f"{name}-{kind}")
                probing = found.get("probing")
                probed = {"blend_chest": probing["blend_chest"], "probing": probing} if probing else {}
                attacks[kind] = {**asdict(adapted), **probed, "loss": lost, "result": _kept(found)}
            rows[name] = {"safety": asdict(safety), "benign": cost, "harms": benign_harms(cost, config.tolerated)}
            rows[name]["attacks"] = attacks
            if name == WATERMARK:
                key = load_key(settings.key_file)
                copies = {kind: (out / ATTACKS / f"{name}-{kind}", row["result"]) for kind, row in attacks.items()}
                reports = [case.pair.candidate or "" for case in cases]
                evidence = watermark_evidence(reports, key, copies, config.seed)
                rows[name] |= {"key_sha256": fingerprint_of(key), "evidence": evidence}
        result = {
            "victim": config.victim,
            "authorised": permission.authorised,
            "n": len(cases),
            "undefended": _kept(undefended),
            "defences": rows,
            "price": asdict(config.price),
            "minimum": {"queries": config.minimum_queries, "studies": config.minimum_studies},
        }
        result["summary"] = security_summary(result)
        run.write(DEFENCE, result)
    return dict(plain(result))


def _benign_cases(run: Run, config: DefendConfig, writer: ReportGenerator) -> list[BenignCase]:
    """Benign images with references and the reports of the undefended victim; unreadable images are left out."""
    corpus = load_corpus(config.data)
    images = Images(corpus)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    batch_size = BatchSize(config.batch_size, run.folder)
    missing = generate_predictions(run, BENIGN, writer, images, ids, batch_size, "generating benign reports")
    lost = {item.id for item in missing}
    candidates = read_predictions(run.path(BENIGN)).items
    references = read_references(config.data, config.section).items
    cases = []
    for key in (key for key in ids if key not in lost):
        one = references[key]
        pair = Pair(key, one.text, candidates[key], one.patient, one.findings, one.context)
        cases.append(BenignCase(pair, to_uint8(grey_image(images.image(key)))))
    return cases


def _reports_behind(
    run: Run, config: DefendConfig, defence: Defence, model: Any, decoding: Decoding, cases: Sequence[BenignCase]
) -> list[str]:
    """Reports of the victim behind a defence that transforms images, for benign images."""
    images, file = Images(load_corpus(config.data)), f"benign_{defence.name}.jsonl"
    ids, batch_size = [case.pair.id for case in cases], BatchSize(config.batch_size, run.folder)
    title = f"generating benign reports behind {defence.name}"
    generate_predictions(run, file, ReportGenerator(model, decoding), images, ids, batch_size, title)
    found = read_predictions(run.path(file)).items
    return [found[key] or "" for key in ids]


def attackers_of(opened: Mapping[str, Defence], config: DefendConfig) -> dict[str, dict[str, Adaptation]]:
    """Defence → what each attacker on it does: one who does not know it, and one who does."""
    attackers = {name: {"plain": Adaptation()} for name in opened}
    if config.adaptive:
        for name, defence in opened.items():
            if (adapted := adaptation(defence, config)) is not None:
                attackers[name]["adaptive"] = adapted
    return attackers


def adaptation(defence: Defence, config: DefendConfig) -> Adaptation | None:
    """What an attacker who knows the defence does; None where the attack offers nothing to adapt."""
    if isinstance(defence, Preprocessing):  # Knockoff moves no image
        return Adaptation(through=str(defence.transformation)) if config.method == "ada-steal" else None
    if isinstance(defence, Gate):
        if config.blend_chest is not None:
            return Adaptation(blend_chest=config.blend_chest, chest=config.chest)
        return Adaptation(probes=config.probes, chest=config.chest)
    if isinstance(defence, Quota):
        return Adaptation(accounts=config.accounts)
    return Adaptation(rewrite=True)


def quota_cost(settings: DefenceSettings, budget: int) -> dict[str, Any]:
    """Expected share of benign requests that the quota refuses, and the accounts that make it ineffective."""
    by_account = {images: benign_share_refused(images, settings.quota) for images in settings.images_per_window}
    refused = sum(by_account[images] * images for images in settings.images_per_window)
    return {
        "answers": settings.quota,
        "by_images_per_window": {f"{images:g}": value for images, value in by_account.items()},
        "share_refused": refused / sum(settings.images_per_window),
        "accounts_needed": accounts_needed(budget, settings.quota, settings.window),
    }


def _kept(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("threat", "method", "budget", "spent", "cost", "refused", "victim", "surrogate", "ratio", "transcript",
             "curve", "predictions")  # fmt: skip
    return {name: found[name] for name in names if name in found}


FOLDER, PREDICTIONS = "folder", "predictions"  # of a result: its run folder, and the copy's reports in it


@dataclass(frozen=True)
class Plan:
    """One attack: the defence of the victim (None for none) with its settings, and the adaptation of the attacker."""

    defence: str | None
    settings: DefenceSettings
    adaptation: Adaptation = Adaptation()


Attack = Callable[[Plan, Path], Mapping[str, Any]]


def audit_attack(config: DefendConfig) -> Attack:
    """A function that runs a plan as an extraction audit with the attack file of the config, which is checked here."""

    def attack(plan: Plan, out: Path) -> Mapping[str, Any]:
        from cxrlab.extraction.audit import extract

        # The victim's reports on the corpus are the same in every attack and share one folder.
        audit = replace(attack_config(config, plan), victim_run=out.parent / "victim")
        return {**extract(audit, out), FOLDER: out}

    attack_config(config, Plan(None, config.settings))
    return attack


def attack_config(config: DefendConfig, plan: Plan) -> ExtractConfig:
    """The settings of the extraction audit of a plan: the attack file, overridden by the plan."""
    return config_from(ExtractConfig, config.attack, overrides(config, plan))


def overrides(config: DefendConfig, plan: Plan) -> list[str]:
    """The settings of an extraction that config and plan decide, as `key=value`."""
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
        "blend_chest": plan.adaptation.blend_chest,
        "probes": plan.adaptation.probes,
        "chest": plan.adaptation.chest,
        "rewrite": str(plan.adaptation.rewrite).lower(),
        "accounts": plan.adaptation.accounts,
        "alignment.through": plan.adaptation.through,
        "price.per_query": config.price.per_query,
        "price.per_1k_tokens": config.price.per_1k_tokens,
        "price.currency": config.price.currency,
    }
    if plan.defence is not None:
        # The cost to benign users, which uses `images_per_window`, is measured here alone.
        names = [field.name for field in fields(plan.settings) if field.name not in ("images_per_window", "strengths")]
        values |= {f"defence_settings.{name}": getattr(plan.settings, name) for name in names}
        values["defence_settings.strengths"] = ",".join(plan.settings.strengths) or None
    # Only values that are not the defaults override the attack file.
    for name, given, usual in (
        ("loading", config.loading, LoadSettings()),
        ("victim_decoding", config.decoding, PaperDecoding()),
    ):
        defaults = flatten(asdict(usual))
        for key, value in flatten(asdict(given)).items():
            if value != defaults[key]:
                values[f"{name}.{key}"] = str(value).lower() if isinstance(value, bool) else value
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def paired_loss(
    config: DefendConfig, defended: Mapping[str, Any], open_: Mapping[str, Any], metric: str, out: Path
) -> dict[str, Any]:
    """As `loss`, but paired by study if both results name the reports of their copies; `out` gets the comparison."""
    found = loss(defended, open_, metric)
    if not all(FOLDER in one and one.get(PREDICTIONS) for one in (defended, open_)):
        return {**found, "paired": False}
    runs = {name: one[FOLDER] / one[PREDICTIONS] for name, one in (("without", open_), ("with", defended))}
    settings = FidelityConfig(metrics=(metric,), section=config.section, seed=config.seed)
    gap = compare_surrogates(runs, config.data, out, settings)["difference"]["with"][metric]
    return {**found, **{key: gap[key] for key in ("difference", "low", "high", "p")}, "paired": True}


def loss(defended: Mapping[str, Any], open_: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """The effect of a defence on the copy: its score with the defence minus its score without.

    The unpaired interval, made of the ends of both, is wider than a paired one.
    """
    one, two = defended["surrogate"].get(metric) or {}, open_["surrogate"].get(metric) or {}
    gap = unpaired_difference(_estimate(one), _estimate(two))
    found: dict[str, Any] = plain({"difference": gap.value, "low": gap.low, "high": gap.high})
    return {"metric": metric, "with": one.get("value"), "without": two.get("value"), **found, "n": one.get("n")}


def _estimate(row: Mapping[str, Any]) -> Estimate:
    value, low, high = (nan_if_none(row.get(key)) for key in ("value", "low", "high"))
    return Estimate(value, low, high, row.get("n") or 0)


METRICS = ("findings.f1", "findings.f1.full", "rougeL:coco", "errors.significant")


@dataclass(frozen=True, eq=False)
class BenignCase:
    """One benign image (uint8 [H, W]) with its reference and, as candidate, the report of the undefended model."""

    pair: Pair
    pixels: Pixels


def benign_cost(
    defence: Defence, cases: Sequence[BenignCase], *, trials: int, seed: int, reports: Sequence[str] | None = None
) -> dict[str, Any]:
    """Refusals, changed words and the paired change (defended minus undefended) of each metric.

    Each image comes from an account of its own; for the cost of a quota see `quota_cost`. A refused image is scored as
    an empty report. `reports` are those of the model for transformed images, in the order of the cases; then the share
    of reports with other findings and the milliseconds per image of the transformation are measured too.
    """
    given = [case.pair.candidate or "" for case in cases] if reports is None else reports
    answers = [
        defence.answer(case.pixels, report, f"benign {number}", number)
        for number, (case, report) in enumerate(zip(cases, given, strict=True))
    ]
    changed = sum(case.pair.candidate != answer.text for case, answer in zip(cases, answers, strict=True))
    refused = sum(answer.refused for answer in answers)
    before = Batch([case.pair for case in cases])
    after = before.with_candidates(["" if answer.refused else answer.text for answer in answers])
    patients = [case.pair.patient or case.pair.id for case in cases]
    rng = generator(seed, "defence", "benign")
    found = paired_differences(_tallies(before), _tallies(after), patients, trials=trials, resamples=trials, rng=rng)
    transformed: dict[str, Any] = {}
    if reports is not None:
        others = [difference(case.pair.candidate or "", answer.text) is not None
                  for case, answer in zip(cases, answers, strict=True)]  # fmt: skip
        transformed["other_findings"] = asdict(share(sum(others), len(cases)))
        start = time.perf_counter()
        defence.transform([to_unit(case.pixels) for case in cases])
        transformed["milliseconds"] = 1000 * (time.perf_counter() - start) / len(cases)
    kept = ("a", "b", "difference", "low", "high", "p", "patients")
    return {
        "n": len(cases),
        "refused": asdict(share(refused, len(cases))),
        "reworded": asdict(share(changed - refused, len(cases))),
        "words": {
            "before": _mean_words([case.pair.candidate or "" for case in cases]),
            "after": _mean_words([answer.text for answer in answers if not answer.refused]),
        },
        "difference": {one.metric: {name: getattr(one, name) for name in kept} for one in found},
        **transformed,
    }


def _tallies(batch: Batch) -> list[Tally]:
    found = {tally.metric.name: tally for family in families(METRICS) for tally in family.tallies(batch)}
    return [found[name] for name in METRICS]


def _mean_words(texts: Sequence[str]) -> float | None:
    return sum(len(text.split()) for text in texts) / len(texts) if texts else None


def benign_harms(cost: Mapping[str, Any], tolerated: float) -> list[str]:
    """Measured harms to benign users, in a few words each.

    A metric counts if its whole interval lies on the wrong side of zero, refusals if their interval lies above the
    tolerated share, and the expected refusals of a quota if they do.
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
    """The watermark test on benign reports, marked and unmarked, on variants of them, and on the reports of copies.

    `copies` maps an attack to its run folder and result. The enriched variant is what ADA-Steal would aim at: the
    oracle's descriptions mixed into marked reports with the default shares.
    """
    from cxrlab.extraction.attack_rounds import enrich

    marked = [Watermark(key).worded(report) for report in reports]
    descriptions = load_descriptions("rules", seed)
    enriched = enrich(marked, descriptions, seed=seed, keys=[str(number) for number in range(len(marked))])
    of_copies: dict[str, Any] = {}
    for name, (folder, found) in copies.items():
        if found.get(PREDICTIONS):
            texts = read_predictions(folder / found[PREDICTIONS]).items.values()
            of_copies[name] = with_needs([text for text in texts if text], key)
        else:
            of_copies[name] = {"p": None, "reason": "the result of the attack has no reports of the copy"}
    return {
        "unmarked": watermark_test(reports, key),
        "marked": with_needs(marked, key),
        "enriched": with_needs([one.text for one in enriched], key),
        "reworded": with_needs([rewrite(report, seed) for report in marked], key),
        "copies": of_copies,
    }
