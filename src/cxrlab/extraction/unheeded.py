"""Settings that somebody changed and that the chosen attack has no use for: told, so that nobody relies on them."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from cxrlab.extraction.config import NO_ORACLE, ExtractConfig

_ROUNDS = ("rounds", "oracle", "shares", "alignment", "transcript")


def unheeded(config: ExtractConfig, *, chooses_words: bool = True, connected: bool = False) -> list[str]:
    """Dotted names of settings that differ from their defaults and do nothing, in alphabetical order.

    Args:
        config: Settings.
        chooses_words: Whether the victim can be told how to choose its words; a baseline cannot.
        connected: Whether it is asked over a connection.
    """
    found = _useless(config, chooses_words, connected)
    return sorted(name for setting in found for name in _changed(config, setting))


def _useless(config: ExtractConfig, chooses_words: bool, connected: bool) -> set[str]:
    """Settings that this attack does not look at; of a group of settings its name."""
    adaptive = config.method in ("knockoff", "in-domain") and config.policy.kind == "adaptive"
    consulted = config.method == "ada-steal" and config.oracle_is_a_model
    found = set() if config.method == "ada-steal" else set(_ROUNDS)
    if config.method == "none":
        found |= {"at", "dress", "probes", "rewrite", "accounts", "defence"}
    if config.method in ("none", "ada-steal"):
        found.add("policy")
    if config.method == "ada-steal" and config.oracle == NO_ORACLE:
        found.add("shares")
    for setting, used in (
        ("chest", config.dress > 0 or config.probes > 0),
        ("defence_settings", config.defence is not None),
        ("fitting.round_steps", (config.method == "ada-steal" and config.alignment.guide is None) or adaptive),
        ("victim_decoding", chooses_words),
        ("stop_after_refusals", connected and config.method != "none"),
        ("consulting", consulted),
        ("oracle_llm", consulted),
    ):
        if not used:
            found.add(setting)
    return found


def _changed(config: ExtractConfig, setting: str) -> list[str]:
    """The setting, or the settings of a group, where they are not the defaults."""
    group, _, name = setting.partition(".")
    value, usual = getattr(config, group), _default(config, group)
    if name:
        return [setting] if getattr(value, name) != getattr(usual, name) else []
    if not is_dataclass(value):
        return [setting] if value != usual else []
    names = (field.name for field in fields(value))
    return [f"{setting}.{name}" for name in names if getattr(value, name) != getattr(usual, name)]


def _default(config: ExtractConfig, name: str) -> Any:
    field = next(field for field in fields(config) if field.name == name)
    assert field.default is not MISSING  # only victim and data have none, and every attack heeds them
    return field.default
