"""The corpora of a study: existing folders, or what the study makes once in its own folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.config import parse_group, raise_problems
from cxrlab.core.errors import ConfigError, did_you_mean, short_repr
from cxrlab.core.registry import load_reference

# Kind of corpus → module:class of its settings, and module:function that makes it.
_FROM_SETTINGS = {
    "phantom": ("cxrlab.data.config:PhantomConfig", "cxrlab.data.phantom.corpus:make_phantom"),
    "scenes": ("cxrlab.data.config:ScenesConfig", "cxrlab.data.synthetic_scenes:make_scenes"),
    "out_of_domain": (
        "cxrlab.extraction.out_of_domain_corpus:OutOfDomainConfig",
        "cxrlab.extraction.out_of_domain_corpus:make_out_of_domain_corpus",
    ),
}
_FROM_CORPORA = ("structured", "composed")
_IN_POOL = re.compile(r"\b(corpus|folder):([^@+]+)")


def corpus_folders(corpora: Mapping[str, Any], out: Path) -> dict[str, Path]:
    """Name → folder of each corpus; every row is checked, nothing is made.

    Args:
        corpora: Name → existing folder, or a mapping of one kind (phantom, structured, …) to its settings.
        out: Folder for those that are made.
    """
    folders: dict[str, Path] = {}
    problems: list[str] = []
    for name, row in corpora.items():
        place = f"corpora, '{name}'"
        if isinstance(row, str):
            folders[name] = Path(row)
            continue
        kinds = (*_FROM_SETTINGS, *_FROM_CORPORA)
        if not isinstance(row, Mapping) or len(row) != 1 or next(iter(row)) not in kinds:
            problems.append(f"{place}: it is {short_repr(row)}; give a folder, or one of {', '.join(kinds)}.")
            continue
        kind, values = next(iter(row.items()))
        if kind in _FROM_SETTINGS:
            problems += parse_group(load_reference(_FROM_SETTINGS[kind][0]), values, place)[1]
        elif not isinstance(values, Mapping):
            problems.append(f"{place}: '{kind}' is {short_repr(values)}; it must be a group of settings.")
        else:
            sources = [values.get("of")] if kind == "structured" else list(values)
            problems += [
                f"{place}: there is no corpus {short_repr(source)} before it.{did_you_mean(str(source), folders)}"
                for source in sources
                if source not in folders
            ]
        folders[name] = out / name
    raise_problems(problems)
    return folders


def make_corpora(corpora: Mapping[str, Any], folders: Mapping[str, Path]) -> None:
    """Make what is not there yet, in order; an unfinished corpus is continued."""
    from cxrlab.data.compose import compose_corpus, plan
    from cxrlab.data.config import ComposeConfig, StructureConfig
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.data.structuring.run import structure_corpus
    from cxrlab.evaluation.load_model import open_text_model

    for name, row in corpora.items():
        if isinstance(row, str):
            continue
        out = folders[name]
        kind, values = next(iter(row.items()))
        if kind == "structured":  # text `of` another corpus, by rules or a text model
            given = {key: value for key, value in values.items() if key != "of"}
            config = _checked(StructureConfig, given, kind)
            source = load_corpus(folders[values["of"]])
            if config.model == RULES:
                structure_corpus(source, config, out)
                continue
            with open_text_model(config.model, config.llm, [source.egress_data], out) as model:
                structure_corpus(source, config, out, model)
        elif kind == "composed":  # earlier corpora, each with settings of `data compose`
            members = {each: {**(member or {}), "corpus": str(folders[each])} for each, member in values.items()}
            compose_corpus(plan(ComposeConfig(members=members, name=out.name)), out)
        else:
            config, make = map(load_reference, _FROM_SETTINGS[kind])
            make(_checked(config, values, kind), out)


def _checked(cls: type[Any], values: Any, place: str) -> Any:
    config, problems = parse_group(cls, values, place)
    raise_problems(problems)
    return config


def with_folders(settings: Mapping[str, Any], folders: Mapping[str, Path], place: str) -> dict[str, Any]:
    """Settings with names of corpora replaced by folders: under `data`, and in the rows of `extra_corpora`."""
    result = dict(settings)
    if "data" in result:
        result["data"] = str(_folder(result["data"], folders, place))
    if isinstance(extra := result.get("extra_corpora"), Mapping):
        rows = {name: row for name, row in extra.items() if isinstance(row, Mapping)}  # the others are refused later
        result["extra_corpora"] = {**extra, **{name: with_folders(row, folders, place) for name, row in rows.items()}}
    return result


def pool_with_folders(pool: str, folders: Mapping[str, Path], place: str) -> str:
    """The name of an image pool with names of corpora replaced by folders.

    Args:
        pool: `corpus:query@train` or `mix:0.1:corpus:query+scenes`; other pools stay as they are. `folder:NAME` is all
            images of that corpus; another folder is kept as it is written.
        folders: Name → folder of each corpus.
        place: What the setting is, for messages.
    """

    def replaced(found: re.Match[str]) -> str:
        kind, name = found.groups()
        if kind == "folder":
            return f"folder:{folders[name] / 'images'}" if name in folders else found[0]
        return f"corpus:{_folder(name, folders, place)}"

    return _IN_POOL.sub(replaced, pool)


def _folder(name: Any, folders: Mapping[str, Path], place: str) -> Path:
    if name not in folders:
        raise ConfigError(
            f"{place}: there is no corpus {short_repr(name)} in the list.{did_you_mean(str(name), folders)} "
            f"Corpora: {', '.join(folders)}."
        )
    return folders[name]
