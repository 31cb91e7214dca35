"""A server tried out on the loopback: are honest clients answered as by the model itself, and who copies cut off?

    server/          books, settings and guard of the server that was tried
    rehearsal.jsonl  every image and picture: by whom, whether it was answered, whether in the local model's words
    rehearsal.json   what it came to

A rehearsal that was stopped begins anew: what a guard has seen decides what it does next.
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

from cxrlab.core.endpoints import EgressData, check_egress, check_encrypted
from cxrlab.core.environment import require
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import to_unit
from cxrlab.core.json_values import plain
from cxrlab.core.protocols import REFUSED, Generated
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.open_models import open_model
from cxrlab.extraction.detection.false_alarm_rates import share
from cxrlab.extraction.detection.features import corpus_images
from cxrlab.extraction.pools import open_pool
from cxrlab.models.load_settings import LoadSettings
from cxrlab.serving.config import RehearseConfig

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image, ImageToText
    from cxrlab.extraction.detection.features import StreamImage
    from cxrlab.extraction.records import Picture
    from cxrlab.models.http_models import HttpReportModel
    from cxrlab.serving.guard import Guard

REHEARSAL, EVIDENCE, SERVER, KEYS = "rehearsal.json", "rehearsal.jsonl", "server", "keys.yaml"
_AT_ONCE = 16  # images that the local model answers together
THREAT = (
    "Threat model: who asks sends pictures and sees words alone; it has as many queries as its account allows, and "
    "does not know the guard. Everything ran on this machine."
)


def rehearse(config: RehearseConfig, out: Path) -> dict[str, Any]:
    """Serve a model on the loopback, send it benign images and pictures without a chest, and tell what happened.

    Args:
        config: Settings.
        out: Run folder; a finished rehearsal with the same settings is left as it is.
    """
    require("serve")
    if finished(out, config, seed=config.seed):
        return dict(read_json(out / REHEARSAL))
    corpus = load_corpus(config.data)
    check_egress(config.model, [corpus.egress_data], config.loading.connection.egress_permission)
    check_encrypted(config.model, config.loading.connection)
    shots = corpus_images(corpus, [config.split], config.n, config.seed)
    pools = {name: open_pool(name, size=config.size, seed=config.seed).draw(config.queries) for name in config.pools}
    model = open_model(config.model, config.loading, [corpus.egress_data])
    with Run.open(out, config, seed=config.seed) as run:
        _clear(out)
        honest = [f"honest-{number + 1}" for number in range(config.accounts)]
        copiers = [f"copier-{number + 1}" for number in range(len(pools))]
        with _served(config, model, corpus.egress_data, [*honest, *copiers], out / SERVER) as (guard, reporter):
            images = [to_unit(shot.load()) for shot in shots]
            benign = _benign(run, reporter, shots, images, honest, _asked_here(model, images))
            alone = _one_by_one(reporter, images[: config.alone], honest[0])
            attacks = {
                name: _attack(run, reporter, name, pictures, account, guard)
                for (name, pictures), account in zip(pools.items(), copiers, strict=True)
            }
            stopped = sum(stop.account in honest for stop in guard.stops()) if guard else 0
        told_guard = _told_guard(config) if config.guard else None
        benign |= {"accounts": len(honest), "clients": config.clients, "stopped": stopped}
        found = {"threat": THREAT, "model": config.model, "guard": told_guard, "benign": benign, "alone": alone}
        run.write(REHEARSAL, plain({**found, "attacks": attacks}))
    return dict(plain({**found, "attacks": attacks}))


def _clear(out: Path) -> None:
    """Take away what a rehearsal that was stopped has left."""
    shutil.rmtree(out / SERVER, ignore_errors=True)
    (out / EVIDENCE).unlink(missing_ok=True)


@contextmanager
def _served(
    config: RehearseConfig, model: ImageToText, images: EgressData, accounts: Sequence[str], folder: Path
) -> Iterator[tuple[Guard | None, HttpReportModel]]:
    """A running server's guard, and a client that has a key for every account."""
    from cxrlab.models.http_models import HttpReportModel
    from cxrlab.serving.accounts import add_account
    from cxrlab.serving.config import Allowance, ServeConfig
    from cxrlab.serving.guard import open_guard
    from cxrlab.serving.monitoring import Journal
    from cxrlab.serving.server import Server
    from cxrlab.serving.service import GUARD_FOLDER, open_service

    keys = [add_account(folder / KEYS, name) for name in accounts]
    guarding = replace(config.guarding, benign=config.guarding.benign or config.data)
    guard = open_guard(guarding, folder / GUARD_FOLDER, config.loading) if config.guard else None
    free = Allowance(requests_in_flight=None)  # the clients of a rehearsal are as many as its settings say
    serving = ServeConfig(
        config.model, name="rehearsed", port=0, keys=folder / KEYS, allowance=free, loading=config.loading
    )
    journal = Journal(None, folder / "log.jsonl")
    service = open_service(serving, folder, model=model, guard=guard, journal=journal, images=images)
    with Server(service) as server, _in_environment(",".join(keys)) as variable:
        connection = replace(
            config.loading.connection, key_variable=variable, auth="bearer", concurrency=config.clients
        )
        loading = LoadSettings(connection=connection, prompts=config.loading.prompts)
        reporter = HttpReportModel.load(f"{server.url}#rehearsed", None, loading)
        for account in accounts:
            reporter.for_accounts([account])  # in this order they have their keys
        yield guard, reporter


@contextmanager
def _in_environment(value: str) -> Iterator[str]:
    """The name of a new environment variable that holds a value: keys are read from nowhere else."""
    variable = f"CXRLAB_REHEARSAL_{secrets.token_hex(4).upper()}"
    os.environ[variable] = value
    try:
        yield variable
    finally:
        del os.environ[variable]


def _asked_here(model: ImageToText, images: Sequence[Image]) -> list[str]:
    """What the model writes without a server."""
    parts = [images[start : start + _AT_ONCE] for start in range(0, len(images), _AT_ONCE)]
    tracked = track(parts, "asking the model itself", len(images), size=len)
    return [answer.text for part in tracked for answer in model.generate(part)]


def _benign(
    run: Run,
    reporter: HttpReportModel,
    shots: Sequence[StreamImage],
    images: Sequence[Image],
    honest: Sequence[str],
    local: Sequence[str],
) -> dict[str, Any]:
    """Images that honest accounts send in turns, all of them at once: who is answered, how fast, in which words."""
    accounts = [honest[place % len(honest)] for place in range(len(images))]
    start = time.monotonic()
    for _ in track(range(1), f"asking the server about {len(images)} benign images"):
        told = reporter.for_accounts(accounts).generate(images)
    seconds = time.monotonic() - start
    same = [None if _refused(answer) else answer.text == words for answer, words in zip(told, local, strict=True)]
    for shot, account, alike in zip(shots, accounts, same, strict=True):
        run.append(EVIDENCE, {"id": shot.key, "account": account, "answered": alike is not None, "same_words": alike})
    answered = sum(alike is not None for alike in same)
    return {
        "images": len(images),
        "answered": asdict(share(answered, len(images))),
        "same_words": asdict(share(sum(alike is True for alike in same), answered)),
        "seconds": seconds,
        "per_second": answered / seconds,
    }


def _one_by_one(reporter: HttpReportModel, images: Sequence[Image], account: str) -> dict[str, Any] | None:
    """How fast images are answered that are sent one after the other; None where none are."""
    if not images:
        return None
    start = time.monotonic()
    answered = sum(not _refused(reporter.for_accounts([account]).generate([image])[0]) for image in images)
    seconds = time.monotonic() - start
    return {"images": len(images), "seconds": seconds, "per_second": answered / seconds}


def _attack(
    run: Run, reporter: HttpReportModel, pool: str, pictures: Sequence[Picture], account: str, guard: Guard | None
) -> dict[str, Any]:
    """Pictures that one account sends one after the other, up to the one at which it is stopped."""
    reports = queries = 0
    stop = None
    for picture in track(pictures, f"asking with {pool}"):
        answer = reporter.for_accounts([account]).generate([to_unit(picture.pixels)])[0]
        queries, reports = queries + 1, reports + (not _refused(answer))
        run.append(EVIDENCE, {"id": f"{pool}/{picture.key}", "account": account, "answered": not _refused(answer)})
        stop = next((one for one in guard.stops() if one.account == account), None) if guard else None
        if stop is not None:
            break
    at, why = (stop.pictures, list(stop.why)) if stop else (None, [])
    return {"queries": queries, "reports": reports, "stopped_at": at, "why": why}


def _told_guard(config: RehearseConfig) -> dict[str, Any]:
    guarding = config.guarding
    return {
        "detectors": list(guarding.detectors),
        "defence": guarding.defence,
        "benign": str(guarding.benign or config.data),
        "image_bound": guarding.image_bound,
        "account_bound": guarding.account_bound,
    }


def _refused(answer: Generated) -> bool:
    return answer.extra.get(REFUSED) is True
