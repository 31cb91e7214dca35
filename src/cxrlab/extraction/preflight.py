"""Checks before the first query: corpus, references, pool, data egress, authorisation and unused settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cxrlab.core.egress import (
    MIN_PERMISSION_WORDS,
    EgressData,
    check_egress,
    check_encrypted,
    check_key_recipients,
    is_address,
    is_loopback,
    is_valid_permission,
)
from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.files import read_json, sha256_of
from cxrlab.core.terminal import terminal_safe
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.evaluation.score_inputs import parse_sections
from cxrlab.evaluation.select_metrics import list_given_families, select_metrics
from cxrlab.extraction.config import NO_ORACLE, ExtractConfig
from cxrlab.extraction.query_pools import Folder, Images, Mix, Pool, with_split
from cxrlab.extraction.surrogate import parse_surrogate
from cxrlab.models.hf.adapters import resolve
from cxrlab.models.model_card import read_model_card
from cxrlab.training.report_model import start_model_name

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Capabilities
    from cxrlab.extraction.records import Price

Part = TypeVar("Part", bound=Pool)


def check_measurable(config: ExtractConfig) -> Corpus:
    """The corpus that copies are measured on, after its split, its references and the metrics were checked."""
    corpus = load_corpus(config.data)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    sections = parse_sections(config.measure.section)
    texts = (getattr(corpus[key].sections, name, None) for key in ids for name in sections)
    if not any(text and text.strip() for text in texts):
        raise DataError(
            f"None of the {len(ids)} studies of {config.data} has a reference in its {config.measure.section} section, "
            "so no copy could be measured; name another corpus, split or --measure.section."
        )
    select_metrics(config.measure.metrics, list_given_families(config.measure.extras))
    return corpus


def check_pool(config: ExtractConfig, pool: Pool, measured: Corpus) -> None:
    """Refuse a pool that is too small, or that holds the images of the corpus `measured` on which copies are measured.

    Unreadable images are known only when they are drawn; here they count.
    """
    needed = pictures_needed(config)
    if pool.count is not None and pool.count < needed:
        raise DataError(
            f"The pool '{pool.name}' holds {pool.count} images, but the attack sends {needed}; lower --budget, or "
            "name a larger --pool."
        )
    for part in _parts_of(pool, Images):
        folder, split = with_split(part.argument)
        if split == config.split and sha256_of(load_corpus(folder).file) == sha256_of(measured.file):
            raise DataError(
                f"The pool '{part.name}' holds the {split} images that the copy is measured on; name another split, "
                f"such as --pool corpus:{folder}@train."
            )
    for one in _parts_of(pool, Folder):
        place = Path(one.argument).resolve()
        images = (measured.path / image.path for study in measured.studies(config.split) for image in study.images)
        if any(radiograph.resolve().is_relative_to(place) for radiograph in images):
            raise DataError(
                f"The pool '{one.name}' holds {config.split} images that the copy may be measured on; name a folder "
                "without them, or --pool corpus:DIR@train."
            )


def check_data_egress(config: ExtractConfig, pool: Pool, measured: Corpus) -> list[EgressData]:
    """The data that is sent to the victim; refuses to send patients' images to a remote address without permission.

    The key of the oracle is not sent to the victim either: at other addresses the two need separate key variables.
    """
    corpora = [measured, *(load_corpus(with_split(part.argument)[0]) for part in _parts_of(pool, Images))]
    # A folder of images, or the image of --chest, may show patients.
    files = [part.argument for part in _parts_of(pool, Folder)] + ([str(config.chest)] if config.chest else [])
    sent = [*(one.egress_data for one in corpora), *(EgressData(name, synthetic=False) for name in files)]
    check_egress(config.victim, sent, config.loading.connection.egress_permission)
    check_encrypted(config.victim, config.loading.connection)
    check_encrypted(config.oracle, config.oracle_llm.connection, "--oracle-llm.connection")
    if config.loading.connection.key_variable == config.oracle_llm.connection.key_variable:
        check_key_recipients([config.victim, config.oracle], config.loading.connection.key_variable)
    return sent


def pictures_needed(config: ExtractConfig) -> int:
    """Different images of the pool that an attack draws if it runs to its end."""
    if config.method == "none":
        return 0
    left = config.budget - config.probes  # each probe is at least one query
    if config.method == "ada-steal" and config.alignment.picture != "fresh":
        return config.probes + -(-left // config.rounds)  # the first round's, which later rounds move
    return config.budget


def _parts_of(pool: Pool, kind: type[Part]) -> Iterator[Part]:
    """Every pool of this kind in a pool."""
    if isinstance(pool, kind):
        yield pool
    elif isinstance(pool, Mix):
        yield from _parts_of(pool.inside, kind)
        yield from _parts_of(pool.outside, kind)


THREAT = "threat.json"  # of a run folder: victim, threat model, authorisation


@dataclass(frozen=True)
class Permission:
    """The authorisation of an audit."""

    # Whether the victim runs elsewhere, where each query may be billed and is lost if the program is killed.
    remote: bool
    # Who authorised it and why, as the user stated it; None where it was not needed and not given.
    authorised: str | None = None


def check_permission(victim_name: str, capabilities: Capabilities, i_am_authorised: str | None) -> Permission:
    """The permission to audit a victim; a `ConfigError` if authorisation is required and was not given.

    Local models and loopback addresses (127.0.0.0/8, ::1, localhost) need none; every other address does, and so does
    every model that runs elsewhere. A local program that forwards queries to a service cannot be detected.
    """
    stated = " ".join(terminal_safe(i_am_authorised or "").split())
    remote = is_remote(victim_name, capabilities)
    if i_am_authorised is None and not remote:
        return Permission(remote=False)
    if is_valid_permission(stated):
        return Permission(remote, stated)
    if not remote:
        raise ConfigError(
            f"--i-am-authorised '{stated}' does not state who authorised the audit and why; write at least "
            f"{MIN_PERMISSION_WORDS} words, or omit it: '{victim_name}' runs on this machine."
        )
    raise ConfigError(
        f"'{victim_name}' runs elsewhere; copying it by queries needs its owner's permission. State who gave it and why "
        f'with --i-am-authorised "WHO AND WHY" (at least {MIN_PERMISSION_WORDS} words); the page shows it.'
    )


def check_address(victim_name: str, i_am_authorised: str | None) -> None:
    """Refuse an address that needs authorisation, before connecting; other models are checked once they are loaded."""
    if is_address(victim_name):
        from cxrlab.core.model_interfaces import Capabilities

        check_permission(victim_name, Capabilities(black_box=True), i_am_authorised)


def recorded_authorisation(out: Path, victim_name: str, i_am_authorised: str | None) -> str | None:
    """The authorisation given now or, for a resumed run without one, that of its folder for the same victim."""
    if i_am_authorised is not None or not (out / THREAT).is_file():
        return i_am_authorised
    record = read_json(out / THREAT)
    return record["authorised"] if record.get("victim") == victim_name else None


def is_remote(victim_name: str, capabilities: Capabilities) -> bool:
    """Whether a victim runs elsewhere: an address that is not loopback, or a model that declares it."""
    if is_address(victim_name):
        return not is_loopback(victim_name)
    return capabilities.black_box


def threat_model(victim: str, budget: int, price: Price, permission: Permission) -> str:
    """What the attacker sees, can change and may spend, and who authorised it: the head of every audit."""
    authorised = "Authorisation: local victim, none required."
    if permission.authorised:
        authorised = f"Authorised, as the user states: {permission.authorised.rstrip('.')}."
    return (
        f"Threat model: the attacker of '{victim}' sees only the text of each answer (no probabilities, vocabulary, "
        "weights or training data), can change only the images that it sends, and may spend "
        f"{budget:,} {'query' if budget == 1 else 'queries'} ({price.describe(budget)}). {authorised}"
    )


_WITH_WEIGHTS = ("hf:", "builtin:")
_NEW = "fresh:"  # untrained weights


def shared_weights(victim: str, surrogate: str, guide: str | None = None) -> list[str]:
    """Names of the models from which both the victim and the attacker's models were made, as model cards write them.

    The attacker has the surrogate, by name or by its parts, and the guide. The origins of a shared model are not
    listed. A victim without weights of its own shares nothing.
    """
    if not victim.startswith(_WITH_WEIGHTS):
        return []
    parts = parse_surrogate(surrogate)
    mine = [start_model_name(parts.start) if parts.start else None, parts.encoder, parts.language_model, guide]
    theirs = {place for _, place in _family([victim])}
    return [name for name, place in _family([one for one in mine if one], theirs) if place in theirs]


def shared_weights_sentence(shared: Sequence[str]) -> str:
    """A sentence for the threat model; empty if nothing is shared."""
    return f"The attacker starts from weights of which the victim was made: {', '.join(shared)}." if shared else ""


def _family(names: Sequence[str], until: set[str] | frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """(name, place) of models and of all models in their `made_from`, each place once, except origins of `until`.

    The place is the folder or hub id of a model, the same whatever its name; the name itself if it does not exist.
    """
    waiting, seen = [(name, Path()) for name in names], set[str]()
    while waiting:
        name, folder = waiting.pop(0)
        place = name
        with suppress(CxrlabError):  # such as built-in weights that this copy does not have
            found = resolve(name, folder)
            place = str(found.resolve()) if isinstance(found, Path) else found
        if place in seen or name.startswith(_NEW):
            continue
        seen.add(place)
        yield name, place
        card = read_model_card(Path(place)) if place not in until and Path(place).is_dir() else None
        if card is not None:  # a relative path counts from the folder of the card
            origins: Any = card.extra.get("made_from")
            values = [*(origins.values() if isinstance(origins, Mapping) else (origins,)), card.base]
            waiting += [(value, Path(place)) for value in values if isinstance(value, str)]


_ROUNDS = ("rounds", "oracle", "shares", "alignment", "transcript")


def unused_settings(config: ExtractConfig, *, chooses_words: bool = True, connected: bool = False) -> list[str]:
    """Dotted names of settings that differ from their defaults but have no effect, in alphabetical order.

    `chooses_words` is whether the victim supports decoding settings, `connected` whether it is behind a connection.
    """
    adaptive = config.method in ("knockoff", "in-domain") and config.policy.kind == "adaptive"
    consulted = config.method == "ada-steal" and config.oracle_is_a_model
    found = set() if config.method == "ada-steal" else set(_ROUNDS)
    if config.method == "none":
        found |= {"at", "blend_chest", "probes", "rewrite", "accounts", "defence"}
    if config.method in ("none", "ada-steal"):
        found.add("policy")
    if config.method == "ada-steal" and config.oracle == NO_ORACLE:
        found.add("shares")
    for setting, used in (
        ("chest", config.blend_chest > 0 or config.probes > 0),
        ("defence_settings", config.defence is not None),
        ("fitting.round_steps", (config.method == "ada-steal" and config.alignment.guide is None) or adaptive),
        ("victim_decoding", chooses_words),
        ("stop_after_refusals", connected and config.method != "none"),
        ("consulting", consulted),
        ("oracle_run", consulted),
        ("oracle_llm", consulted),
    ):
        if not used:
            found.add(setting)
    changed: list[str] = []
    for setting in found:
        group, _, name = setting.partition(".")
        value, default = getattr(config, group), ExtractConfig.__dataclass_fields__[group].default
        if not is_dataclass(value):
            changed += [setting] if value != default else []
            continue
        names = [name] if name else [field.name for field in fields(value)]
        changed += [f"{group}.{name}" for name in names if getattr(value, name) != getattr(default, name)]
    return sorted(changed)
