"""Does a guarded server answer benign clients and block extraction, and does an audit over HTTP see the same model?

    cxrlab data make phantom --n 5300 --size 128 --seed 21 --no-masks --out corpora/guarded
    python experiments/guarded_server.py --data corpora/guarded --out runs/guarded_server

Starts `cxrlab serve` on this machine twice, each in a separate process. Without a guard: the same Knockoff attack on the
local model and on the served one, and the share of equal reports. With the guard, calibrated on the train and val images
of the corpus: five accounts send held-out images, and each report is compared with that of the local model; then
`cxrlab extract` attacks, each with its own account, until it is blocked. The last two attacks send chest images, which
detectors of out-of-domain images cannot see. Eight to eleven minutes on two cores.

Columns: images that the account had sent when it was blocked, reports that the attacker received, refusals.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cxrlab.core.egress import Connection
from cxrlab.core.files import make_folder, write_json
from cxrlab.core.image_codec import to_unit
from cxrlab.core.model_interfaces import REFUSED
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.extraction.audit import extract, write_victim
from cxrlab.extraction.config import ExtractConfig, FidelityConfig, Fitting, PaperDecoding
from cxrlab.extraction.detection.features import corpus_images
from cxrlab.extraction.query_ledger import LEDGER, read_ledger
from cxrlab.metrics.statistics.intervals import wilson
from cxrlab.models.decoding import Decoding, SupportsDecoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.serving.accounts import BlockedAccounts, add_account

NAME = "served"
CLINICS = tuple(f"clinic-{number}" for number in range(1, 6))
AUDITOR = "auditor"  # sends the images on which copies are evaluated
ATTACKS: dict[str, dict[str, Any]] = {
    "knockoff": {"method": "knockoff", "pool": "scenes"},
    "ada-steal": {"method": "ada-steal", "pool": "scenes"},
    "ada-steal-chests": {"method": "ada-steal", "pool": "corpus:{data}@train", "budget": 40, "rounds": 2},
    "in-domain": {"method": "in-domain", "pool": "corpus:{data}@train", "budget": 40},
}
START_S = 300.0
BATCH = 16
GREEDY = PaperDecoding(strategy="greedy", max_new_tokens=256)  # the default decoding of a server


def main() -> None:
    """Serve without and with a guard, send queries, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="corpus of benign images")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--model", default="builtin:reporter")
    parser.add_argument("--n", type=int, default=500, help="held-out images of benign accounts")
    parser.add_argument(
        "--same", type=int, default=200, help="queries of the audit of the served and of the local model"
    )
    parser.add_argument("--budget", type=int, default=1500, help="queries of an attack on the guarded server")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--rehearse", action="store_true", help="a few images and a model of empty reports, to check that it runs"
    )
    given = parser.parse_args()
    flags = shrink(given) if given.rehearse else []
    make_folder(given.out)
    keys = {name: add_account(given.out / "keys.yaml", name) for name in (*CLINICS, AUDITOR, *ATTACKS)}
    began = time.monotonic()
    with served(given, "open", keys=False) as address:
        same = compare_over_http(given, address)
    with served(given, "guarded", "--guard", f"--guarding.benign={given.data}", *flags) as address:
        benign = query_as_benign(given, address, keys)
        chosen = list(ATTACKS)[:1] if given.rehearse else list(ATTACKS)
        attacks = {name: run_attack(given, address, keys, name) for name in chosen}
    with BlockedAccounts(given.out / "guarded" / "guard") as book:
        stops = {stop.account: stop for stop in book.entries()}
    for name, row in attacks.items():
        row["blocked_at"] = stops[name].pictures if name in stops else None
        row["rung"] = list(stops[name].why) if name in stops else []
    benign["blocked"] = sorted(set(stops) & {*CLINICS, AUDITOR})
    found = {"over_http": same, "benign": benign, "attacks": attacks, "seconds": round(time.monotonic() - began)}
    write_json(given.out / "guarded_server.json", found)
    show(found)


def shrink(given: argparse.Namespace) -> list[str]:
    """Set small sizes and make a small corpus; returns flags for a guard calibrated on few images."""
    given.data, given.model = given.out / "corpus", "stub:empty"
    given.n, given.same, given.budget = 4, 6, 20
    make_phantom(PhantomConfig(n=60, size=32, seed=5, masks=False), given.data)
    return ["--guarding.image-bound=0.1", "--guarding.account-queries=20"]


@contextmanager
def served(given: argparse.Namespace, folder: str, *more: str, keys: bool = True) -> Iterator[str]:
    """Address of the model on a server in a separate process, with a log next to its folder."""
    words = ["serve", "--model", given.model, "--name", NAME, "--port", "0", "--out", str(given.out / folder), *more]
    words += ["--keys", str(given.out / "keys.yaml")] if keys else []
    log = (given.out / f"{folder}.log").open("wb")
    process = subprocess.Popen([sys.executable, "-m", "cxrlab", *words], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # ends when the server ends, too
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
        if url is None:
            raise SystemExit(f"The server did not start; see {given.out / folder}.log")
        yield f"{url.group()}#{NAME}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def config_of(
    given: argparse.Namespace, victim: str, variable: str = "CXRLAB_API_KEY", **changes: Any
) -> ExtractConfig:
    """Settings of an audit whose copy is hardly trained and is evaluated on a few images."""
    options = {"method": "knockoff", "budget": given.budget, **changes}
    if given.rehearse:
        options |= {"size": 32, "stop_after_refusals": 10}
    return ExtractConfig(
        victim,
        given.data,
        n=2 if given.rehearse else 8,
        seed=given.seed,
        batch_size=BATCH,
        map_sentences=0,
        fitting=Fitting(steps=2, batch_size=4),
        measure=FidelityConfig(metrics=("findings.f1",)),
        victim_decoding=GREEDY if victim.startswith(("hf:", "builtin:")) else PaperDecoding(),
        surrogate_decoding=PaperDecoding(strategy="greedy", max_new_tokens=32),
        loading=LoadSettings(connection=Connection(key_variable=variable)),
        **options,
    )


def compare_over_http(given: argparse.Namespace, address: str) -> dict[str, Any]:
    """The same Knockoff attack on the local and on the served model: share of queries with equal reports."""
    folders = {"here": given.model, "there": address}
    for name, victim in folders.items():
        extract(config_of(given, victim, budget=given.same), given.out / f"same_{name}")
    here, there = (read_ledger(given.out / f"same_{name}" / LEDGER) for name in folders)
    equal = sum(one.sha256 == two.sha256 and one.report == two.report for one, two in zip(here, there, strict=True))
    return {**share(equal, len(here)), "distinct_reports": len({one.report for one in here})}


def query_as_benign(given: argparse.Namespace, address: str, keys: dict[str, str]) -> dict[str, Any]:
    """Send held-out images from five accounts in turn: share answered, and share equal to the local model's reports."""
    from cxrlab.evaluation.load_model import load_model

    os.environ["CXRLAB_CLINICS"] = ",".join(keys[name] for name in CLINICS)
    served_model: Any = load_model(address, LoadSettings(connection=Connection(key_variable="CXRLAB_CLINICS")))
    local_model: Any = load_model(given.model)
    shots = corpus_images(load_corpus(given.data), ("test",), given.n, given.seed)
    passed = equal = 0
    for start in range(0, len(shots), BATCH):
        images = [to_unit(shot.load()) for shot in shots[start : start + BATCH]]
        names = [CLINICS[place % len(CLINICS)] for place in range(start, start + len(images))]
        responses = served_model.for_accounts(names).generate(images)
        expected = local_reports(local_model, images)
        passed += sum(one.extra.get(REFUSED) is not True for one in responses)
        equal += sum(one.text == text for one, text in zip(responses, expected, strict=True))
    return {**share(passed, len(shots)), "accounts": len(CLINICS), "as_here": share(equal, passed)}


def local_reports(model: Any, images: Sequence[Any]) -> list[str]:
    """Reports of the local model with the default decoding of a server."""
    if isinstance(model, SupportsDecoding):
        return [answers[0].text for answers in model.answers(images, None, Decoding())]
    return [one.text for one in model.generate(images)]


def run_attack(given: argparse.Namespace, address: str, keys: dict[str, str], name: str) -> dict[str, Any]:
    """Run one attack with its own account; the victim is evaluated once, with the auditor's account."""
    os.environ.update({"CXRLAB_AUDITOR": keys[AUDITOR], "CXRLAB_ATTACKER": keys[name]})
    options = {key: value.format(data=given.data) if key == "pool" else value for key, value in ATTACKS[name].items()}
    shared = given.out / "victim"
    config = config_of(given, address, "CXRLAB_ATTACKER", **options)
    write_victim(replace(config, loading=LoadSettings(connection=Connection(key_variable="CXRLAB_AUDITOR"))), shared)
    found = extract(replace(config, victim_run=shared), given.out / f"attack_{name}")
    return {
        "budget": found["budget"],
        "asked": found["spent"],
        "reports": found["answered"] - found["refused"],
        "refused": found["refused"],
        "shut_out": found["stopped"],
    }


def share(part: int, whole: int) -> dict[str, Any]:
    """A share with its interval (95 %, Wilson)."""
    low, high = wilson(part, whole).ends
    return {"value": part / whole if whole else None, "low": low, "high": high, "k": part, "n": whole}


def show(found: dict[str, Any]) -> None:
    """Print the results."""
    same, benign = found["over_http"], found["benign"]
    print(f"equal reports of the local and the served model: {share_text(same)}; {same['distinct_reports']} distinct")
    blocked = ", ".join(benign["blocked"]) or "none"
    print(f"held-out images answered, {benign['accounts']} accounts: {share_text(benign)}; blocked: {blocked}")
    print(f"  of these equal to the local model: {share_text(benign['as_here'])}")
    print("\n| attack | budget | queries | blocked at image | by | reports received | refused |")
    print("|---" * 7 + "|")
    for name, row in found["attacks"].items():
        cells = [name, row["budget"], row["asked"], row["blocked_at"] or "never", ", ".join(row["rung"]) or "–"]
        print(f"| {' | '.join(map(str, [*cells, row['reports'], row['refused']]))} |")
    print(f"\n{found['seconds']} s")


def share_text(value: dict[str, Any]) -> str:
    """A share with its counts and interval as text."""
    if value["value"] is None:
        return "none to count"
    return f"{value['k']} of {value['n']} ({value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}])"


if __name__ == "__main__":
    main()
