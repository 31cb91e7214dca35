"""The file of accounts: made by `cxrlab serve key`, read when a server starts.

Under `accounts:` stands one entry an account, with `key_sha256` and, where they differ from the server's, its
`requests_per_minute`, `answers_per_day`, `answers_total` and `requests_in_flight`.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

import yaml

from cxrlab.core.errors import ConfigError, nearest, shown
from cxrlab.core.files import write_text
from cxrlab.core.locks import lock_file
from cxrlab.core.yaml_file import read_yaml
from cxrlab.extraction.defence.defended import ANYBODY
from cxrlab.serving.accounts import Account, hash_of
from cxrlab.serving.config import Allowance

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NUMBERS = {
    "requests_per_minute": (int, float),
    "answers_per_day": (int,),
    "answers_total": (int,),
    "requests_in_flight": (int,),
}
_KEYS = ("key_sha256", *_NUMBERS)
PREFIX = "cxr-"  # so that a key is known for one where it was pasted by mistake


def new_key() -> str:
    """A key nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


def add_account(file: Path, name: str) -> str:
    """Add an account with a new key to the file, which is made where it is not there; returns the key."""
    if not _NAME.fullmatch(name) or name == ANYBODY:
        raise ConfigError(
            f"'{name}' cannot name an account; use up to 64 letters, digits, dots, dashes and underscores, and not "
            f"'{ANYBODY}'."
        )
    with lock_file(file):  # until it is written: another process would add its account to the same old entries
        held = _entries(file) if file.exists() else {}
        if name in held:
            raise ConfigError(
                f"{file} has an account '{name}' already; choose another name, or take its entry out first."
            )
        key = new_key()
        entries = {**held, name: {"key_sha256": hash_of(key)}}
        write_text(file, yaml.safe_dump({"accounts": entries}, sort_keys=False, allow_unicode=True))
    return key


def read_accounts(file: Path, allowance: Allowance) -> list[Account]:
    """The accounts of a file, at least one.

    Args:
        file: The file.
        allowance: What holds for accounts that do not say otherwise.
    """
    found = [_account(file, name, values, allowance) for name, values in _entries(file).items()]
    if not found:
        raise ConfigError(f"{file} holds no account; make one with 'cxrlab serve key NAME --keys {file}'.")
    if len({account.key_sha256 for account in found}) < len(found):
        raise ConfigError(f"{file} gives the same key to two accounts; make a key for each.")
    return found


def _entries(file: Path) -> dict[str, Any]:
    values = read_yaml(file)[0]
    entries = values.get("accounts", {})
    for key in values:
        if key != "accounts":
            raise ConfigError(f"{file} has an unknown key {shown(key)}; everything stands under 'accounts:'.")
    if not isinstance(entries, dict):
        raise ConfigError(f"{file}: 'accounts' must be a group of accounts; see 'cxrlab serve key --help'.")
    return entries


def _account(file: Path, name: Any, values: Any, allowance: Allowance) -> Account:
    place = f"{file}: account {shown(name)}"
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(values, dict):
        raise ConfigError(f"{place} is no account; write its name and under it 'key_sha256: …'.")
    for key in values:
        if key not in _KEYS:
            raise ConfigError(f"{place} has an unknown key {shown(key)}.{nearest(str(key), _KEYS)}")
    digest = values.get("key_sha256")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ConfigError(f"{place} needs 'key_sha256', 64 hexadecimal digits; 'cxrlab serve key' writes it.")
    limits: dict[str, Any] = {}
    for key, kinds in _NUMBERS.items():
        value = values.get(key, getattr(allowance, key))
        right = value is None or (isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < 2**62)
        if not right:
            raise ConfigError(f"{place}: {key} is {shown(value)}; give a number above 0, or null for no limit.")
        limits[key] = value
    return Account(name, digest, **limits)
