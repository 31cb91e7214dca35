"""`cxrlab serve`: a model as an HTTP service, and the accounts that may use it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cxrlab.cli.output import Result, columns, measurement
from cxrlab.core.errors import DataError, UnknownName, did_you_mean
from cxrlab.serving.config import RehearseConfig, ServeConfig


def serve(config: ServeConfig, out: Path = Path("runs/serve")) -> None:
    """Serve a model through OpenAI's chat completions protocol; requests carry their images as base64.

    Listens on this machine only unless --host says otherwise. The log goes to the error stream, one JSON object per
    line, without images, reports or keys. SIGTERM ends the server in an orderly way with exit code 0, Ctrl-C with 130.

    Args:
        out: Folder of the server: settings, and what each account has used; kept over restarts.
    """
    from cxrlab.serving.service import run

    run(config, out)


def rehearse(config: RehearseConfig, out: Path) -> Result:
    """Test a server on this machine: benign images from benign accounts, then images from accounts that copy the model.

    For models that you own or may test. RUN/rehearsal.json has the share of benign images that were answered, whether
    the reports were unchanged, the speed, and the query at which each copying account was blocked; RUN/rehearsal.jsonl
    has every query.
    """
    from cxrlab.serving.rehearsal import rehearse as run

    found = run(config, out)
    benign, alone = found["benign"], found["alone"]
    answered, unchanged = (
        f"{measurement(share, digits=4)} of {share['n']}" if share["value"] is not None else "–"
        for share in (benign["answered"], benign["same_words"])
    )
    rows = [
        ["benign images answered", answered],
        ["reports identical to the model's own", unchanged],
        ["benign accounts blocked", f"{benign['blocked']} of {benign['accounts']}"],
        [f"answers per second, {benign['clients']} at once", f"{benign['per_second']:.2f}"],
    ]
    if alone is not None:
        rows.append(["answers per second, one by one", f"{alone['per_second']:.2f}"])
    attacks = [["images without a chest", "blocked at query", "by", "reports returned", "queries"]]
    for name, row in found["attacks"].items():
        at = "never" if row["blocked_at"] is None else str(row["blocked_at"])
        attacks.append([name, at, ", ".join(row["why"]) or "–", str(row["reports"]), str(row["queries"])])
    return Result(f"{found['threat']}\n\n{columns(rows)}\n\n{columns(attacks)}", found)


def unblock(name: str | None = None, out: Path = Path("runs/serve")) -> Result:
    """Unblock an account that the guard has blocked, or list the blocked accounts.

    A running server applies it at the account's next request.

    Args:
        name: Name of the account; without one, the blocked accounts are listed.
        out: Folder of the server.
    """
    from cxrlab.serving.accounts import BLOCKED_FILE, BlockedAccounts
    from cxrlab.serving.service import GUARD_FOLDER

    if not (out / GUARD_FOLDER / BLOCKED_FILE).is_file():
        raise DataError(f"{out} is not the folder of a server with a guard; give that of 'cxrlab serve --guard --out'.")
    with BlockedAccounts(out / GUARD_FOLDER) as blocked:
        if name is None:
            rows = [[one.account, one.at, ", ".join(one.why), f"{one.pictures} images"] for one in blocked.entries()]
            return Result(columns(rows) or "no account is blocked", [asdict(one) for one in blocked.entries()])
        if not blocked.remove(name):
            names = [one.account for one in blocked.entries()]
            raise UnknownName(f"the guard has not blocked '{name}'.{did_you_mean(name, names)}")
    return Result(f"'{name}' is no longer blocked", {"account": name})


def make_key(name: str, keys: Path) -> Result:
    """Make a key for a new account; it is printed only now, and the file keeps only its hash.

    Rates and quotas of the account can be written beside the hash: requests_per_minute, answers_per_day,
    answers_total, requests_in_flight. A server reads the file when it starts.

    Args:
        name: Name of the account.
        keys: YAML file of accounts; made if it does not exist.
    """
    from cxrlab.serving.accounts import add_account

    key = add_account(keys, name)
    note = f"This is the key of '{name}'. It is stored nowhere: {keys} has only its hash."
    return Result(f"{key}\n{note}", {"account": name, "key": key})
