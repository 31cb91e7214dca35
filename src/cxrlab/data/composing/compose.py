"""A composition: find its members, walk through it once, then write it as a corpus of its own.

Images stay where they are: the new corpus reaches each member through one link of the member's name. The
table of what was taken stands on its card, beside the counts of a paper where the settings give them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from cxrlab.core.config import flatten, to_dict
from cxrlab.core.errors import DataError
from cxrlab.core.files import sha256_of
from cxrlab.core.json_form import plain
from cxrlab.core.records import Study
from cxrlab.data.building import Drawn, Recipe, build_corpus
from cxrlab.data.card import CARD, Card
from cxrlab.data.collections import UNKNOWN, check_external, known_collections
from cxrlab.data.composing.config import ComposeConfig, Member
from cxrlab.data.composing.members import branch
from cxrlab.data.composing.survey import Survey, survey
from cxrlab.data.composing.table import Row
from cxrlab.data.composing.tree import MEMBER, Merge, printed
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.importers import IMPORTERS
from cxrlab.data.makers import MAKERS

ABSENT_PRIOR = "absent_prior"
PRIOR_LEFT_OUT = "the prior study is not in the composition"
NOT_THERE = "its corpus is not there"
# Raised whenever the same members give another corpus than before, so that one is never continued by the other.
FORM = 1
# What is said of a member and does not show in the studies; the content of its corpus does.
_WITHOUT_EFFECT = ("corpus", "data_set", "stages", "paper")


@dataclass(frozen=True)
class Composition:
    """A composition that was walked through and can be written.

    Args:
        config: Its settings.
        corpora: Member → its corpus, of those that are there.
        tree: The merge.
        seen: What it holds.
        rows: The table, members that are not there included.
        notes: What was not checked, a sentence each.
    """

    config: ComposeConfig
    corpora: Mapping[str, Corpus]
    tree: Merge
    seen: Survey
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The printed tree."""
        return printed(self.tree, self.seen.tally)


def plan(config: ComposeConfig) -> Composition:
    """Open the members, refuse what must not be merged, and count; nothing is written."""
    members = config.chosen()
    corpora = _opened(members, config.allow_missing)
    notes = [*_check_external(config, corpora), *_unknown(corpora)]
    tree = Merge({name: branch(corpus, members[name]) for name, corpus in corpora.items()})
    here = {name: members[name] for name in corpora}
    seen = survey(tree, here, _collection_keys(corpora))
    return Composition(config, corpora, tree, seen, tuple(_rows(members, corpora, seen)), tuple(notes))


def compose_corpus(composition: Composition, out: str | Path) -> Corpus:
    """Write a composition, or continue where an interrupted one stopped; the same members give the same bytes.

    A member of which nothing is taken is a `DataError`: something is wrong with its settings or its corpus. So is a
    folder inside a member, which the links of the new corpus would lead back into.
    """
    for name, corpus in composition.corpora.items():
        if _stands_in(Path(out), corpus):
            raise DataError(f"{out} stands in the member '{name}' ({corpus.path}) or its images; choose another --out.")
    for name, taken in composition.seen.taken.items():
        if not taken.studies:
            raise DataError(
                f"nothing is taken of the member '{name}' ({composition.corpora[name].path}); --dry-run shows where "
                "its studies are lost. A text that is lacking can be made with 'cxrlab data structure'."
            )
    recipe: Recipe[Study] = Recipe(
        items=composition.tree.studies(),
        ids=lambda study: (study.id,),
        draw=partial(_drawn, composition.seen.ids),
        label=f"composing {composition.config.name}",
        total=len(composition.seen.ids),
        links={name: corpus.path for name, corpus in composition.corpora.items()},
    )
    # One process: a study costs less to rename than to hand to a worker.
    return build_corpus(out, _card(composition), recipe, workers=1)


def _stands_in(out: Path, corpus: Corpus) -> bool:
    """Whether a folder would be made in a corpus, or in a folder of images that it links to."""
    homes = [corpus.path, *(entry for entry in corpus.path.iterdir() if entry.is_symlink())]
    return any(out.resolve().is_relative_to(home.resolve()) and not out.resolve() == home.resolve() for home in homes)


def _opened(members: Mapping[str, Member], allow_missing: bool) -> dict[str, Corpus]:
    missing = {name: member for name, member in members.items() if not (member.corpus / CARD).is_file()}
    if missing and (not allow_missing or len(missing) == len(members)):
        told = "".join(f"\n  {name}: {_how_to_get(name, member)}" for name, member in missing.items())
        hint = "" if len(missing) == len(members) else ", or compose the others with --allow-missing"
        raise DataError(f"{len(missing)} of {len(members)} members have no complete corpus; make them{hint}:{told}")
    return {name: load_corpus(member.corpus) for name, member in members.items() if name not in missing}


def _how_to_get(name: str, member: Member) -> str:
    data_set = member.data_set or name
    if data_set in IMPORTERS:
        return f"cxrlab data import {data_set} --root DIR --out {member.corpus}"
    if data_set in MAKERS:
        return f"cxrlab data make {data_set} --out {member.corpus}"
    return f"there is no corpus in {member.corpus}"


def _check_external(config: ComposeConfig, corpora: Mapping[str, Corpus]) -> list[str]:
    """Refuse members of a collection that was learnt from; returns a sentence for each corpus that is not there."""
    notes: list[str] = []
    for path in config.external_to:
        if config.allow_missing and not (path / CARD).is_file():
            notes.append(f"nobody checked whether this is external to {path}, which is not there")
            continue
        seen = load_corpus(path).card
        for name, corpus in corpora.items():
            check_external(seen, dataclasses.replace(corpus.card, name=name))
    return notes


def _unknown(corpora: Mapping[str, Corpus]) -> list[str]:
    """A sentence for each member of which nobody knows whether its patients are those of another."""
    return [
        f"nobody checked whether patients of '{name}' are in other members too: its card names no collection"
        for name, corpus in corpora.items()
        if len(corpora) > 1 and UNKNOWN in known_collections(corpus.card)
    ]


def _collection_keys(corpora: Mapping[str, Corpus]) -> dict[str, str]:
    """Member → a text that is the same for members of one collection; one without a collection is its own."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, corpus in corpora.items():
        given = tuple(sorted(corpus.card.collections)) or (f"{corpus.path.resolve()}",)
        for other, theirs in keys.items():
            common = set(given) & set(theirs)
            if common and (given != theirs or not _names_alike(corpus, corpora[other])):
                raise DataError(
                    f"the members '{other}' and '{name}' share the collection {min(common)}, and a composition gives "
                    "patients other names, so that nobody can tell which are the same; take the corpora that it was "
                    "composed of instead."
                )
        keys[name] = given
    return {name: ", ".join(given) for name, given in keys.items()}


def _names_alike(one: Corpus, other: Corpus) -> bool:
    """Whether the same patient has the same name in two corpora of one collection; only a composition changes names."""
    # Its studies tell, also when they were structured or scrubbed since.
    composed = any(MEMBER in study.extra for corpus in (one, other) for study in islice(corpus.studies(), 1))
    return not composed or one.path.resolve() == other.path.resolve()


def _rows(members: Mapping[str, Member], corpora: Mapping[str, Corpus], seen: Survey) -> list[Row]:
    rows: list[Row] = []
    for name, member in members.items():
        if name not in corpora:
            rows.append(Row(name, paper=member.paper, note=f"{NOT_THERE} ({_how_to_get(name, member)})"))
            continue
        taken, counts = seen.taken[name], corpora[name].card.counts
        rows.append(
            Row(
                member=name,
                patients=counts.get("patients"),
                images=counts.get("images"),
                taken_studies=taken.studies,
                taken_patients=taken.patients,
                taken_images=taken.images,
                pairs=taken.pairs,
                texts=taken.texts,
                paper=member.paper,
            )
        )
    return rows


def _drawn(ids: frozenset[str], study: Study) -> Sequence[Drawn]:
    if study.prior is None or study.prior in ids:
        return [Drawn(study)]
    extra = {**study.extra, ABSENT_PRIOR: study.prior}
    return [Drawn(dataclasses.replace(study, prior=None, extra=extra), remarks=(PRIOR_LEFT_OUT,))]


def _card(composition: Composition) -> Card:
    cards = {name: corpus.card for name, corpus in composition.corpora.items()}
    members = composition.config.chosen()

    def gathered(field: str) -> str:
        given = {name: getattr(card, field) for name, card in cards.items()}
        return "; ".join(f"{name}: {value.rstrip('.')}" for name, value in given.items() if value)

    settings: dict[str, Any] = {"form": FORM, "stage": composition.config.stage}
    for name, corpus in composition.corpora.items():
        asked = {key: value for key, value in to_dict(members[name]).items() if key not in _WITHOUT_EFFECT}
        settings[name] = {"studies_sha256": sha256_of(corpus.file), **asked}
    found = [name for card in cards.values() for name in known_collections(card)]
    return Card(
        name=composition.config.name,
        source=gathered("source"),
        licence=gathered("licence"),
        citation=gathered("citation"),
        settings=flatten(settings),
        synthetic=all(card.synthetic for card in cards.values()),
        collections=tuple(dict.fromkeys(found)),
        absent=None if all(card.absent is None for card in cards.values()) else {},
        extra={"table": [plain(_told(row)) for row in composition.rows]},
    )


def _told(row: Row) -> dict[str, Any]:
    """A row of the table without what depends on the machine, and without what nobody knows."""
    values = {**to_dict(row), "note": NOT_THERE if row.note else None}
    paper = {key: value for key, value in values.pop("paper").items() if value is not None}
    values = {**values, "paper": paper}
    return {key: value for key, value in values.items() if value not in (None, {})}
