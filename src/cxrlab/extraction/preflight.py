"""What must be right before a query is spent: the images to measure on, their references, and the pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cxrlab.core.endpoints import (
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
from cxrlab.core.records import Study
from cxrlab.core.terminal import terminal_safe
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.evaluation.metric_choice import select_metrics
from cxrlab.evaluation.score_inputs import parse_sections
from cxrlab.extraction.config import NO_ORACLE, ExtractConfig
from cxrlab.extraction.fidelity import extra_cards
from cxrlab.extraction.pools import Folder, Images, Mix, Pool, with_split
from cxrlab.extraction.surrogate import parse_surrogate
from cxrlab.models.hf.adapters import resolve
from cxrlab.models.model_card import read_model_card
from cxrlab.training.llava import start_model_name

if TYPE_CHECKING:
    from cxrlab.core.protocols import Capabilities
    from cxrlab.extraction.records import Price

Part = TypeVar("Part", bound=Pool)


def check_measurable(config: ExtractConfig) -> Corpus:
    """The corpus that copies are measured on, after its split, its references and the metrics were found usable.

    Raises:
        DataError: Where there is no corpus, no study in the split, or no reference among the studies.
        UnknownName: Where a metric is unknown or lacks what it needs.
    """
    corpus = load_corpus(config.data)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    sections = parse_sections(config.measure.section)
    if not any(_has_reference(corpus[key], sections) for key in ids):
        raise DataError(
            f"none of the {len(ids)} studies of {config.data} has a reference in its {config.measure.section} section, "
            "so no copy could be measured; name another corpus, split or --measure.section."
        )
    select_metrics(config.measure.metrics, extra_cards(config.measure.extras))
    return corpus


def _has_reference(study: Study, sections: Sequence[str]) -> bool:
    return any((getattr(study.sections, name, None) or "").strip() for name in sections)


def check_pool(config: ExtractConfig, pool: Pool, measured: Corpus) -> None:
    """Refuse a pool that ends before the attack does, and one that holds the images that copies are measured on.

    Args:
        config: Settings.
        pool: Opened.
        measured: The corpus of `check_measurable`.

    Pictures that cannot be read are known only when they are drawn, and count as there.
    """
    needed = pictures_needed(config)
    if pool.count is not None and pool.count < needed:
        raise DataError(
            f"the pool '{pool.name}' holds {pool.count} pictures, but the attack asks {needed}; ask for fewer, or "
            "name a larger pool."
        )
    for part in _parts_of(pool, Images):
        folder, split = with_split(part.argument)
        if split == config.split and sha256_of(load_corpus(folder).file) == sha256_of(measured.file):
            raise DataError(
                f"the pool '{part.name}' asks the {split} images that the copy is measured on, so it would be asked and "
                f"graded on the same ones; name another split, such as corpus:{folder}@train."
            )

    for one in _parts_of(pool, Folder):
        place = Path(one.argument).resolve()
        images = (measured.path / image.path for study in measured.studies(config.split) for image in study.images)
        if any(radiograph.resolve().is_relative_to(place) for radiograph in images):
            raise DataError(
                f"the pool '{one.name}' holds {config.split} images that the copy may be measured on, so it would be "
                "asked and graded on the same ones; name a folder without them, or corpus:DIR@train."
            )


def check_data_egress(config: ExtractConfig, pool: Pool, measured: Corpus) -> list[EgressData]:
    """What the victim will be shown; patients' images for an address elsewhere without a permission are refused.

    Nor does the oracle's key go to the victim: elsewhere, the two need environment variables of their own.

    Args:
        config: Settings.
        pool: Opened; the corpora and folders in it are asked with.
        measured: Whose images the victim is shown, too.
    """
    corpora = [measured, *(load_corpus(with_split(part.argument)[0]) for part in _parts_of(pool, Images))]
    # Nobody knows what is in a folder of pictures, nor whose chest an image shows.
    files = [part.argument for part in _parts_of(pool, Folder)] + ([str(config.chest)] if config.chest else [])
    shown = [*(one.egress_data for one in corpora), *(EgressData(name, synthetic=False) for name in files)]
    check_egress(config.victim, shown, config.loading.connection.egress_permission)
    check_encrypted(config.victim, config.loading.connection)
    check_encrypted(config.oracle, config.oracle_llm.connection, "--oracle-llm.connection")
    if config.loading.connection.key_variable == config.oracle_llm.connection.key_variable:
        check_key_recipients([config.victim, config.oracle], config.loading.connection.key_variable)
    return shown


def pictures_needed(config: ExtractConfig) -> int:
    """Different pictures of the pool that an attack draws when all goes well."""
    if config.method == "none":
        return 0
    left = config.budget - config.probes  # each probe is at least one query
    if config.method == "ada-steal" and config.alignment.picture != "fresh":
        return config.probes + -(-left // config.rounds)  # the first round's, which later rounds move
    return config.budget


def _parts_of(pool: Pool, kind: type[Part]) -> Iterator[Part]:
    """Every pool of this kind in it."""
    if isinstance(pool, kind):
        yield pool
    elif isinstance(pool, Mix):
        yield from _parts_of(pool.inside, kind)
        yield from _parts_of(pool.outside, kind)


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


def recorded_authorisation(out: Path, victim_name: str, i_am_authorised: str | None) -> str | None:
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


_WITH_WEIGHTS = ("hf:", "builtin:")
_NEW = "fresh:"  # weights that nobody has trained yet


def shared_weights(victim: str, surrogate: str, guide: str | None = None) -> list[str]:
    """Names of what the attacker has and the victim was made from too, as cards write them; none where none is known.

    Of a part that is shared as a whole its own origins are not named.

    Args:
        victim: Name of the attacked model; one without weights of its own shares nothing.
        surrogate: Name of the surrogate, or of its parts.
        guide: Name of the encoder that moves pictures, where one does.
    """
    if not victim.startswith(_WITH_WEIGHTS):
        return []
    parts = parse_surrogate(surrogate)
    mine = [start_model_name(parts.start) if parts.start else None, parts.encoder, parts.language_model, guide]
    theirs = {place for _, place in _family([victim])}
    return [name for name, place in _family([one for one in mine if one], theirs) if place in theirs]


def shared_weights_sentence(shared: Sequence[str]) -> str:
    """A sentence for the threat model; empty where nothing is shared."""
    if not shared:
        return ""
    return f"The attacker begins with weights that the victim was made from: {', '.join(shared)}."


def _family(names: Sequence[str], until: set[str] | frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Name and place of models and of everything that they were made from, each place once.

    Args:
        names: Of the models.
        until: Places behind which nobody looks.
    """
    waiting, seen = [(name, Path()) for name in names], set[str]()
    while waiting:
        name, folder = waiting.pop(0)
        place = _place(name, folder)
        if place in seen or name.startswith(_NEW):
            continue
        seen.add(place)
        yield name, place
        if place not in until:
            waiting += [(origin, Path(place)) for origin in _made_from(Path(place))]


def _made_from(folder: Path) -> list[str]:
    """Names that a model's card gives; a relative path counts from the folder."""
    card = read_model_card(folder) if folder.is_dir() else None
    if card is None:
        return []
    told: Any = card.extra.get("made_from")
    values = [*(told.values() if isinstance(told, Mapping) else (told,)), card.base]
    return [value for value in values if isinstance(value, str)]


def _place(name: str, folder: Path) -> str:
    """Folder or hub id of a model, the same whatever its name; the name itself where nothing is there."""
    try:
        found = resolve(name, folder)
    except CxrlabError:  # such as built-in weights that this copy does not have
        return name
    return str(found.resolve()) if isinstance(found, Path) else found


_ROUNDS = ("rounds", "oracle", "shares", "alignment", "transcript")


def unused_settings(config: ExtractConfig, *, chooses_words: bool = True, connected: bool = False) -> list[str]:
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
