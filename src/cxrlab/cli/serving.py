"""`cxrlab serve`: a model behind an address, and keys for those who may ask it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cxrlab.cli.output import Result, columns
from cxrlab.core.errors import DataError, UnknownName, did_you_mean
from cxrlab.serving.config import RehearseConfig, ServeConfig


def serve(config: ServeConfig, out: Path = Path("runs/serve")) -> None:
    """Serve a model by the protocol of OpenAI's chat completions; images come within the request, as base64.

    Listens on this machine alone unless told otherwise. The log goes to the error stream, one JSON object a line, and
    holds neither images nor reports nor keys. SIGTERM ends the server in an orderly way with exit code 0, Ctrl-C with
    130.

    Args:
        config: Settings.
        out: Folder of the server's books (what each account has had) and settings; kept over restarts.
    """
    from cxrlab.serving.service import run

    run(config, out)


def rehearse(config: RehearseConfig, out: Path) -> Result:
    """Try a server out on this machine: benign images by honest accounts, then pictures by somebody who copies.

    For models that you own or may test. RUN/rehearsal.json has the share of images that were answered, in which words
    and how fast, and the query at which each copier was cut off; RUN/rehearsal.jsonl every image and picture.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.serving.rehearsal import rehearse as try_out

    found = try_out(config, out)
    return Result(f"{found['threat']}\n\n{_benign(found)}\n\n{_copiers(found['attacks'])}", found)


def _benign(found: Mapping[str, Any]) -> str:
    benign, alone = found["benign"], found["alone"]
    rows = [
        ["benign images answered", _share(benign["answered"])],
        ["in the words of the model itself", _share(benign["same_words"])],
        ["honest accounts stopped", f"{benign['stopped']} of {benign['accounts']}"],
        [f"answers a second, {benign['clients']} at once", f"{benign['per_second']:.2f}"],
    ]
    if alone is not None:
        rows.append(["answers a second, one by one", f"{alone['per_second']:.2f}"])
    return columns(rows)


def _copiers(attacks: Mapping[str, Any]) -> str:
    rows = [["pictures without a chest", "cut off at query", "by", "reports handed out", "queries"]]
    for name, row in attacks.items():
        at = "never" if row["stopped_at"] is None else str(row["stopped_at"])
        rows.append([name, at, ", ".join(row["why"]) or "–", str(row["reports"]), str(row["queries"])])
    return columns(rows)


def _share(rate: Mapping[str, Any]) -> str:
    if rate["value"] is None:
        return "–"
    return f"{rate['value']:.4f} [{rate['low']:.4f}, {rate['high']:.4f}] of {rate['n']}"


def forgive(name: str | None = None, out: Path = Path("runs/serve")) -> Result:
    """Let an account that the guard has stopped ask again, or list those that it has stopped.

    A running server heeds it at the account's next request.

    Args:
        name: Name of the account; without one the stopped accounts are listed.
        out: Folder of the server.
    """
    from cxrlab.serving.accounts import BOOK, BlockedAccounts
    from cxrlab.serving.service import GUARD_FOLDER

    if not (out / GUARD_FOLDER / BOOK).is_file():
        raise DataError(f"{out} is no folder of a server with a guard; give the one of 'cxrlab serve --guard --out'.")
    with BlockedAccounts(out / GUARD_FOLDER) as book:
        if name is None:
            rows = [[stop.account, stop.at, ", ".join(stop.why), f"{stop.pictures} pictures"] for stop in book.stops()]
            return Result(columns(rows) or "no account is stopped", [asdict(stop) for stop in book.stops()])
        if not book.strike(name):
            stopped = [stop.account for stop in book.stops()]
            raise UnknownName(f"the guard has not stopped '{name}'.{did_you_mean(name, stopped)}")
    return Result(f"'{name}' may ask again", {"account": name})


def make_key(name: str, keys: Path) -> Result:
    """Make a key for a new account; it is shown this once, and the file keeps its hash alone.

    Rates and quotas of the account can be written beside the hash: requests_per_minute, answers_per_day,
    answers_total, requests_in_flight. A running server reads the file when it starts.

    Args:
        name: Name of the account.
        keys: YAML file of accounts, made where it is not there.
    """
    from cxrlab.serving.accounts import add_account

    key = add_account(keys, name)
    told = f"{key}\nThis is the key of '{name}'; it is not kept anywhere, {keys} has its hash."
    return Result(told, {"account": name, "key": key})
