"""Test a server on the loopback: are benign clients answered as by the model itself, and copying accounts blocked?

    server/          quotas, settings and guard of the tested server
    rehearsal.jsonl  every image: account, whether it was answered, whether in the local model's words
    rehearsal.json   the summary

An interrupted rehearsal starts again, since a guard's decisions depend on all images before.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.egress import EgressData, check_egress, check_encrypted
from cxrlab.core.environment import require
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import to_unit
from cxrlab.core.json_values import plain
from cxrlab.core.model_interfaces import REFUSED, Generated
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.load_model import open_model
from cxrlab.extraction.detection.false_alarm_rates import share
from cxrlab.extraction.detection.features import corpus_images
from cxrlab.extraction.query_pools import open_pool
from cxrlab.models.load_settings import LoadSettings
from cxrlab.serving.config import RehearseConfig

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image, ImageToText
    from cxrlab.extraction.detection.features import StreamImage
    from cxrlab.extraction.records import QueryImage
    from cxrlab.models.http_models import HttpReportModel
    from cxrlab.serving.guard import Guard

REHEARSAL, EVIDENCE, SERVER, KEYS = "rehearsal.json", "rehearsal.jsonl", "server", "keys.yaml"
_BATCH = 16  # of the local model
THREAT = (
    "Threat model: the attacker sends images and sees text only, has as many queries as its account allows, and does "
    "not know the guard. Everything ran on this machine."
)


def rehearse(config: RehearseConfig, out: Path) -> dict[str, Any]:
    """Serve a model on the loopback, send benign images and images without a chest, and summarise the answers.

    A finished rehearsal with the same settings in the run folder `out` is kept.
    """
    require("serve")
    if finished(out, config, seed=config.seed):
        return dict(read_json(out / REHEARSAL))
    corpus = load_corpus(config.data)
    check_egress(config.model, [corpus.egress_data], config.loading.connection.egress_permission)
    check_encrypted(config.model, config.loading.connection)
    samples = corpus_images(corpus, [config.split], config.n, config.seed)
    pools = {name: open_pool(name, size=config.size, seed=config.seed).draw(config.queries) for name in config.pools}
    model = open_model(config.model, config.loading, [corpus.egress_data])
    benign_accounts = [f"benign-{number + 1}" for number in range(config.accounts)]
    copiers = [f"copier-{number + 1}" for number in range(len(pools))]
    with Run.open(out, config, seed=config.seed) as run:
        shutil.rmtree(out / SERVER, ignore_errors=True)  # of an interrupted rehearsal
        (out / EVIDENCE).unlink(missing_ok=True)
        with _serve(config, model, corpus.egress_data, [*benign_accounts, *copiers], out / SERVER) as (guard, client):
            images = [to_unit(sample.load()) for sample in samples]
            parts = [images[start : start + _BATCH] for start in range(0, len(images), _BATCH)]
            tracked = track(parts, "generating reports with the local model", len(images), size=len)
            local = [answer.text for part in tracked for answer in model.generate(part)]
            benign = _send_benign(run, client, samples, images, benign_accounts, local)
            alone = None
            if one_by_one := images[: config.alone]:
                start = time.monotonic()
                answers = [client.for_accounts([benign_accounts[0]]).generate([image])[0] for image in one_by_one]
                seconds = time.monotonic() - start
                count = sum(not _refused(answer) for answer in answers)
                alone = {"images": len(one_by_one), "seconds": seconds, "per_second": count / seconds}
            attacks = {
                name: _attack(run, client, name, pictures, account, guard)
                for (name, pictures), account in zip(pools.items(), copiers, strict=True)
            }
            blocked = sum(one.account in benign_accounts for one in guard.blocked_accounts()) if guard else 0
        guarding = config.guarding
        described = {
            "detectors": list(guarding.detectors),
            "defence": guarding.defence,
            "benign": str(guarding.benign or config.data),
            "image_bound": guarding.image_bound,
            "account_bound": guarding.account_bound,
        }
        benign |= {"accounts": len(benign_accounts), "clients": config.clients, "blocked": blocked}
        found = plain(
            {
                "threat": THREAT,
                "model": config.model,
                "guard": described if config.guard else None,
                "benign": benign,
                "alone": alone,
                "attacks": attacks,
            }
        )
        run.write(REHEARSAL, found)
    return dict(found)


@contextmanager
def _serve(
    config: RehearseConfig, model: ImageToText, images: EgressData, accounts: Sequence[str], folder: Path
) -> Iterator[tuple[Guard | None, HttpReportModel]]:
    """A running server: its guard, and a client with a key for every account."""
    from cxrlab.models.http_models import HttpReportModel
    from cxrlab.serving.accounts import add_account
    from cxrlab.serving.config import Allowance, ServeConfig
    from cxrlab.serving.guard import open_guard
    from cxrlab.serving.http_server import Server
    from cxrlab.serving.monitoring import Journal
    from cxrlab.serving.service import GUARD_FOLDER, open_service

    keys = [add_account(folder / KEYS, name) for name in accounts]
    guarding = replace(config.guarding, benign=config.guarding.benign or config.data)
    guard = open_guard(guarding, folder / GUARD_FOLDER, config.loading) if config.guard else None
    free = Allowance(requests_in_flight=None)  # the settings limit the number of clients
    serving = ServeConfig(
        config.model, name="rehearsed", port=0, keys=folder / KEYS, allowance=free, loading=config.loading
    )
    journal = Journal(None, folder / "log.jsonl")
    service = open_service(serving, folder, model=model, guard=guard, journal=journal, images=images)
    variable = f"CXRLAB_REHEARSAL_{secrets.token_hex(4).upper()}"  # keys are read from the environment only
    os.environ[variable] = ",".join(keys)
    try:
        with Server(service) as server:
            connection = replace(
                config.loading.connection, key_variable=variable, auth="bearer", concurrency=config.clients
            )
            loading = LoadSettings(connection=connection, prompts=config.loading.prompts)
            client = HttpReportModel.load(f"{server.url}#rehearsed", None, loading)
            for account in accounts:
                client.for_accounts([account])  # takes its key, in this order
            yield guard, client
    finally:
        del os.environ[variable]


def _send_benign(
    run: Run,
    client: HttpReportModel,
    samples: Sequence[StreamImage],
    images: Sequence[Image],
    benign_accounts: Sequence[str],
    local: Sequence[str],
) -> dict[str, Any]:
    """Send images of benign accounts concurrently: how many are answered, how fast, and as by the local model."""
    accounts = [benign_accounts[place % len(benign_accounts)] for place in range(len(images))]
    start = time.monotonic()
    for _ in track(range(1), f"sending {len(images)} benign images to the server"):
        answers = client.for_accounts(accounts).generate(images)
    seconds = time.monotonic() - start
    same = [None if _refused(answer) else answer.text == text for answer, text in zip(answers, local, strict=True)]
    for sample, account, alike in zip(samples, accounts, same, strict=True):
        run.append(EVIDENCE, {"id": sample.key, "account": account, "answered": alike is not None, "same_words": alike})
    answered = sum(alike is not None for alike in same)
    return {
        "images": len(images),
        "answered": asdict(share(answered, len(images))),
        "same_words": asdict(share(sum(alike is True for alike in same), answered)),
        "seconds": seconds,
        "per_second": answered / seconds,
    }


def _attack(
    run: Run, client: HttpReportModel, pool: str, pictures: Sequence[QueryImage], account: str, guard: Guard | None
) -> dict[str, Any]:
    """Send images of one account one by one, until it is blocked."""
    reports = queries = 0
    block = None
    for picture in track(pictures, f"querying with images of {pool}"):
        answer = client.for_accounts([account]).generate([to_unit(picture.pixels)])[0]
        queries, reports = queries + 1, reports + (not _refused(answer))
        run.append(EVIDENCE, {"id": f"{pool}/{picture.key}", "account": account, "answered": not _refused(answer)})
        block = next((one for one in guard.blocked_accounts() if one.account == account), None) if guard else None
        if block is not None:
            break
    at, why = (block.pictures, list(block.why)) if block else (None, [])
    return {"queries": queries, "reports": reports, "blocked_at": at, "why": why}


def _refused(answer: Generated) -> bool:
    return answer.extra.get(REFUSED) is True
