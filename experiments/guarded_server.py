"""Does a guarded server let honest images through and cut a copier off, and does an audit over HTTP see the same model?

    cxrlab data make phantom --n 5300 --size 128 --seed 21 --no-masks --out corpora/guarded
    python experiments/guarded_server.py --data corpora/guarded --out runs/guarded_server

Starts `cxrlab serve` on this machine twice, in a process of its own. Without a guard: the same Knockoff against the
model here and behind the address; how many answers are the same. With the guard, calibrated on the train and val images
of the corpus: held-out images by five accounts, each report compared with the model's here; then attacks by
`cxrlab extract`, each under an account of its own, until it is shut out. The last two rows ask with chest images: what
no detector of strange pictures can see is in the table, too. Eight to eleven minutes on two processors.

Columns: pictures the account had sent when it was stopped, reports that the attacker had been handed, refusals.
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

from cxrlab.core.endpoints import Connection
from cxrlab.core.files import make_folder, write_json
from cxrlab.core.image_codec import to_unit
from cxrlab.core.protocols import REFUSED
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.extraction.audit import extract, write_victim
from cxrlab.extraction.config import ExtractConfig, FidelityConfig, Fitting, PaperDecoding
from cxrlab.extraction.detection.features import corpus_images
from cxrlab.extraction.ledger import LEDGER, read_ledger
from cxrlab.extraction.transcript_analysis import wilson
from cxrlab.models.decoding import Decoding, SupportsDecoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.serving.accounts import BlockedAccounts, add_account

NAME = "served"
CLINICS = tuple(f"clinic-{number}" for number in range(1, 6))
AUDITOR = "auditor"  # shows the images on which copies are measured
ATTACKS: dict[str, dict[str, Any]] = {
    "knockoff": {"method": "knockoff", "pool": "scenes"},
    "ada-steal": {"method": "ada-steal", "pool": "scenes"},
    "ada-steal-chests": {"method": "ada-steal", "pool": "corpus:{data}@train", "budget": 40, "rounds": 2},
    "in-domain": {"method": "in-domain", "pool": "corpus:{data}@train", "budget": 40},
}
START_S = 300.0
BATCH = 16
GREEDY = PaperDecoding(strategy="greedy", max_new_tokens=256)  # as a server is asked


def main() -> None:
    """Serve without and with a guard, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="corpus of benign images")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--model", default="builtin:reporter")
    parser.add_argument("--n", type=int, default=500, help="held-out images of honest accounts")
    parser.add_argument("--same", type=int, default=200, help="queries of the audit over HTTP and here")
    parser.add_argument("--budget", type=int, default=1500, help="of an attack on the guarded server")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rehearse", action="store_true", help="a few images and a silent model, to see that it runs")
    given = parser.parse_args()
    flags = rehearsed(given) if given.rehearse else []
    make_folder(given.out)
    keys = {name: add_account(given.out / "keys.yaml", name) for name in (*CLINICS, AUDITOR, *ATTACKS)}
    begun = time.monotonic()
    with served(given, "open", keys=False) as address:
        same = compared(given, address)
    with served(given, "guarded", "--guard", f"--guarding.benign={given.data}", *flags) as address:
        benign = answered(given, address, keys)
        chosen = list(ATTACKS)[:1] if given.rehearse else list(ATTACKS)
        attacks = {name: attacked(given, address, keys, name) for name in chosen}
    with BlockedAccounts(given.out / "guarded" / "guard") as book:
        stops = {stop.account: stop for stop in book.entries()}
    for name, row in attacks.items():
        row["stopped_at"] = stops[name].pictures if name in stops else None
        row["rung"] = list(stops[name].why) if name in stops else []
    benign["stopped"] = sorted(set(stops) & {*CLINICS, AUDITOR})
    found = {"over_http": same, "benign": benign, "attacks": attacks, "seconds": round(time.monotonic() - begun)}
    write_json(given.out / "guarded_server.json", found)
    show(found)


def rehearsed(given: argparse.Namespace) -> list[str]:
    """Small sizes and a corpus to go with them; flags of a guard that is content with few images."""
    given.data, given.model = given.out / "corpus", "stub:empty"
    given.n, given.same, given.budget = 4, 6, 20
    make_phantom(PhantomConfig(n=60, size=32, seed=5, masks=False), given.data)
    return ["--guarding.image-bound=0.1", "--guarding.account-queries=20"]


@contextmanager
def served(given: argparse.Namespace, folder: str, *more: str, keys: bool = True) -> Iterator[str]:
    """The address of the model behind a server in a process of its own; the log lies beside its folder."""
    words = ["serve", "--model", given.model, "--name", NAME, "--port", "0", "--out", str(given.out / folder), *more]
    words += ["--keys", str(given.out / "keys.yaml")] if keys else []
    log = (given.out / f"{folder}.log").open("wb")
    process = subprocess.Popen([sys.executable, "-m", "cxrlab", *words], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # ends when the server ends, too
        told = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
        if told is None:
            raise SystemExit(f"the server did not start; see {given.out / folder}.log")
        yield f"{told.group()}#{NAME}"
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
    """An audit that spends its time on llm: the copy is hardly trained and measured on a few images."""
    wanted = {"method": "knockoff", "budget": given.budget, **changes}
    if given.rehearse:
        wanted |= {"size": 32, "stop_after_refusals": 10}
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
        **wanted,
    )


def compared(given: argparse.Namespace, address: str) -> dict[str, Any]:
    """The same Knockoff here and over HTTP: how many questions got the same words."""
    folders = {"here": given.model, "there": address}
    for name, victim in folders.items():
        extract(config_of(given, victim, budget=given.same), given.out / f"same_{name}")
    here, there = (read_ledger(given.out / f"same_{name}" / LEDGER) for name in folders)
    equal = sum(one.sha256 == two.sha256 and one.report == two.report for one, two in zip(here, there, strict=True))
    return {**share(equal, len(here)), "distinct_reports": len({one.report for one in here})}


def answered(given: argparse.Namespace, address: str, keys: dict[str, str]) -> dict[str, Any]:
    """Held-out images by turns of five accounts: how many are answered, and with the words of the model here."""
    from cxrlab.evaluation.open_models import load_model

    os.environ["CXRLAB_CLINICS"] = ",".join(keys[name] for name in CLINICS)
    there: Any = load_model(address, LoadSettings(connection=Connection(key_variable="CXRLAB_CLINICS")))
    here: Any = load_model(given.model)
    shots = corpus_images(load_corpus(given.data), ("test",), given.n, given.seed)
    passed = equal = 0
    for start in range(0, len(shots), BATCH):
        images = [to_unit(shot.load()) for shot in shots[start : start + BATCH]]
        names = [CLINICS[place % len(CLINICS)] for place in range(start, start + len(images))]
        told = there.for_accounts(names).generate(images)
        words = written(here, images)
        passed += sum(one.extra.get(REFUSED) is not True for one in told)
        equal += sum(one.text == text for one, text in zip(told, words, strict=True))
    return {**share(passed, len(shots)), "accounts": len(CLINICS), "as_here": share(equal, passed)}


def written(model: Any, images: Sequence[Any]) -> list[str]:
    """The model's words, chosen as a server is asked to choose them."""
    if isinstance(model, SupportsDecoding):
        return [answers[0].text for answers in model.answers(images, None, Decoding())]
    return [one.text for one in model.generate(images)]


def attacked(given: argparse.Namespace, address: str, keys: dict[str, str], name: str) -> dict[str, Any]:
    """One attack under its own account; the victim is measured under the auditor's, once."""
    os.environ.update({"CXRLAB_AUDITOR": keys[AUDITOR], "CXRLAB_ATTACKER": keys[name]})
    wanted = {key: value.format(data=given.data) if key == "pool" else value for key, value in ATTACKS[name].items()}
    shared = given.out / "victim"
    config = config_of(given, address, "CXRLAB_ATTACKER", **wanted)
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
    low, high = wilson(part, whole)
    return {"value": part / whole if whole else None, "low": low, "high": high, "k": part, "n": whole}


def show(found: dict[str, Any]) -> None:
    """The figures as people read them."""
    same, benign = found["over_http"], found["benign"]
    print(f"the same answer here and over HTTP: {told(same)}; {same['distinct_reports']} different reports")
    stopped = ", ".join(benign["stopped"]) or "none"
    print(f"held-out images answered, {benign['accounts']} accounts: {told(benign)}; stopped: {stopped}")
    print(f"  of these with the words of the model here: {told(benign['as_here'])}")
    print("\n| attack | budget | asked | stopped at picture | by | reports handed out | refused |")
    print("|---" * 7 + "|")
    for name, row in found["attacks"].items():
        cells = [name, row["budget"], row["asked"], row["stopped_at"] or "never", ", ".join(row["rung"]) or "–"]
        print(f"| {' | '.join(map(str, [*cells, row['reports'], row['refused']]))} |")
    print(f"\n{found['seconds']} s")


def told(value: dict[str, Any]) -> str:
    """A share in words."""
    if value["value"] is None:
        return "none to count"
    return f"{value['k']} of {value['n']} ({value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}])"


if __name__ == "__main__":
    main()
