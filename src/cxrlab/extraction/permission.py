"""Whether a victim may be audited, under whose leave, and what its attacker sees, can change and may spend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.core.endpoints import MIN_PERMISSION_WORDS, is_address, is_loopback, is_valid_permission
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.core.terminal import terminal_safe

if TYPE_CHECKING:
    from cxrlab.core.protocols import Capabilities
    from cxrlab.extraction.terms import Price

THREAT = "threat.json"  # of a run folder: victim, threat model, and under whose leave


@dataclass(frozen=True)
class Permission:
    """Under whose leave a victim is asked.

    Args:
        remote: Whether it runs elsewhere, where each question may be billed and is lost when the program ends early.
        authorised: Who gave leave and why, as the user said it; None where none was needed and none was named.
    """

    remote: bool
    authorised: str | None = None


def check_permission(victim_name: str, capabilities: Capabilities, i_am_authorised: str | None) -> Permission:
    """The permission to audit a victim, or a `ConfigError` where leave is needed and was not named.

    Local models and loopback addresses (127.0.0.0/8, ::1, localhost) need none. Every other address does, and so does
    every model that runs elsewhere. A program on this machine that passes questions on to a service cannot be told
    from a model: its owner's leave is the user's own affair.

    Args:
        victim_name: As the user wrote it.
        capabilities: What the victim says of itself.
        i_am_authorised: Who gave leave and why; kept, and shown on the page.
    """
    said = " ".join(terminal_safe(i_am_authorised or "").split())
    remote = is_remote(victim_name, capabilities)
    if i_am_authorised is None and not remote:
        return Permission(remote=False)
    if is_valid_permission(said):
        return Permission(remote, said)
    if not remote:
        raise ConfigError(
            f"--i-am-authorised '{said}' does not say who gave leave and why; write a few words, or leave it out: "
            f"'{victim_name}' runs on this machine."
        )
    raise ConfigError(
        f"'{victim_name}' runs elsewhere; copying it by queries needs its owner's leave. Say who gave it and why with "
        f'--i-am-authorised "WHO AND WHY" (at least {MIN_PERMISSION_WORDS} words), which is kept and shown on the page.'
    )


def check_address(victim_name: str, i_am_authorised: str | None) -> None:
    """Refuse an address that needs leave which was not named, before anything connects to it.

    What is no address says only when it is loaded whether it runs elsewhere: `check_permission` decides then.
    """
    if is_address(victim_name):
        from cxrlab.core.protocols import Capabilities

        check_permission(victim_name, Capabilities(black_box=True), i_am_authorised)


def standing(out: Path, victim_name: str, i_am_authorised: str | None) -> str | None:
    """The leave that is named now or, where a stopped run goes on without a word of it, the one on record.

    Args:
        out: Run folder; leave for another victim that is on record there says nothing of this one.
        victim_name: As the user wrote it.
        i_am_authorised: Who gave leave and why, as it is named now.
    """
    if i_am_authorised is not None or not (out / THREAT).is_file():
        return i_am_authorised
    record = read_json(out / THREAT)
    return record["authorised"] if record.get("victim") == victim_name else None


def is_remote(victim_name: str, capabilities: Capabilities) -> bool:
    """Whether a victim runs elsewhere: an address that is not loopback, or a model that says so of itself."""
    if is_address(victim_name):
        return not is_loopback(victim_name)
    return capabilities.black_box


def threat_model(victim: str, budget: int, price: Price, permission: Permission) -> str:
    """What the attacker sees, can change and may spend, and under whose leave: the first words of every audit.

    Args:
        victim: Name of the attacked model.
        budget: Most queries.
        price: What they cost.
        permission: From `check_permission`.
    """
    return (
        f"Threat model: the attacker of '{victim}' sees the words of each answer alone (no probabilities, vocabulary, "
        "weights or training data), can change the pictures that it sends and nothing else, and may spend "
        f"{budget:,} {'query' if budget == 1 else 'queries'} ({price.told(budget)}). {_leave(permission)}"
    )


def _leave(permission: Permission) -> str:
    if permission.authorised:
        return f"Authorised, as the user states: {permission.authorised.rstrip('.')}."
    return "The victim runs on this machine, so nobody else's leave was asked for."
