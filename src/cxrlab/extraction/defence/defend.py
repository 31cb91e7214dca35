"""Every defence in one table: benign cost, what it takes from a copy, and from one made by who knows it.

    benign.jsonl     what the undefended victim writes for benign images
    attacks/…        a whole extraction for each row: none, NAME-plain, NAME-adaptive
    defence.json     the table and the summary for a security reviewer

A stopped run goes on where it stopped; a finished one is left as it is. A defence that changes any finding of a
benign report is refused before anything is attacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cxrlab.core.endpoints import connection_operational_fields, is_address
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.json_values import plain
from cxrlab.core.memory import BatchSize
from cxrlab.core.runs import Run, finished
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import grey_image
from cxrlab.evaluation.generate import Images, ReportGenerator, generate_predictions, select_studies
from cxrlab.evaluation.open_models import open_model
from cxrlab.evaluation.score_inputs import read_predictions, read_references
from cxrlab.extraction.before_asking import check_images_may_leave
from cxrlab.extraction.defence.adaptive import Adaptation
from cxrlab.extraction.defence.attacking import Attack, Plan, attack_config, audit_attack, paired_loss
from cxrlab.extraction.defence.base import Defence
from cxrlab.extraction.defence.benign import BenignCase, benign_cost, harms
from cxrlab.extraction.defence.config import DefenceSettings, DefendConfig
from cxrlab.extraction.defence.evidence import watermark_evidence
from cxrlab.extraction.defence.gate import Gate
from cxrlab.extraction.defence.keys import fingerprint_of, load_key
from cxrlab.extraction.defence.quotas import Quota, accounts_needed, benign_share_refused
from cxrlab.extraction.defence.safety import SafetyReport, check_on_benign
from cxrlab.extraction.defence.severity import METRIC, security_summary
from cxrlab.extraction.defence.table import open_defence
from cxrlab.extraction.permission import THREAT, check_address, check_permission, standing, threat_model
from cxrlab.extraction.pools import open_pool
from cxrlab.metrics.pairs import Pair
from cxrlab.models.decoding import Decoding, SupportsDecoding

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
    config = replace(config, i_am_authorised=standing(out, config.victim, config.i_am_authorised))
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
        check_images_may_leave(asked, pool, load_corpus(config.data))


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
