"""The corpora of a study: folders that are there, or what a seed draws, each made once in the study's own folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.config import parse_group, raise_problems
from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr

MAKES = ("phantom", "scenes", "bland", "structured", "composed")
_DRAWN = ("phantom", "scenes", "bland")  # made of settings alone, not of other corpora
_IN_POOL = re.compile(r"\b(corpus|folder):([^@+]+)")


def corpus_folders(corpora: Mapping[str, Any], out: Path) -> dict[str, Path]:
    """Name → folder of each corpus; every row is checked, nothing is made.

    Args:
        corpora: Name → folder, or a mapping with one of `MAKES` as its key.
        out: Where those that are made go.
    """
    folders: dict[str, Path] = {}
    problems: list[str] = []
    for name, row in corpora.items():
        if isinstance(row, str):
            folders[name] = Path(row)
            continue
        if not isinstance(row, Mapping) or len(row) != 1 or next(iter(row)) not in MAKES:
            problems.append(f"corpora, '{name}': it is {short_repr(row)}; give a folder, or one of {', '.join(MAKES)}.")
            continue
        problems += _check(name, row, folders)
        folders[name] = out / name
    raise_problems(problems)
    return folders


def make_corpora(corpora: Mapping[str, Any], folders: Mapping[str, Path]) -> None:
    """Make what is not there yet, in order; a corpus that was begun is continued, one that is there is opened."""
    raise_absent(corpora, folders)
    for name, row in corpora.items():
        if not isinstance(row, str):
            kind, values = next(iter(row.items()))
            _MAKERS[kind](values, folders, folders[name])


def raise_absent(corpora: Mapping[str, Any], folders: Mapping[str, Path]) -> None:
    """Refuse a folder that is named and not there, before anything is drawn."""
    absent = [name for name, row in corpora.items() if isinstance(row, str) and not folders[name].is_dir()]
    if absent:
        more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
        raise DataError(f"corpora, '{absent[0]}': the folder {folders[absent[0]]} does not exist{more}.")


def _check(name: str, row: Mapping[str, Any], earlier: Mapping[str, Path]) -> list[str]:
    """What is wrong with a row; a corpus it is made of must stand before it."""
    kind, values = next(iter(row.items()))
    place = f"corpora, '{name}'"
    if kind in _DRAWN:
        return parse_group(_config(kind), values, place)[1]
    if not isinstance(values, Mapping):
        return [f"{place}: '{kind}' is {short_repr(values)}; it must be a group of settings."]
    sources = [values.get("of")] if kind == "structured" else list(values)
    return [
        f"{place}: there is no corpus {short_repr(source)} before it.{did_you_mean(str(source), earlier)}"
        for source in sources
        if source not in earlier
    ]


def _config(kind: str) -> type[Any]:
    from cxrlab.data.config import PhantomConfig, ScenesConfig
    from cxrlab.extraction.out_of_domain_corpus import OutOfDomainConfig

    return {"phantom": PhantomConfig, "scenes": ScenesConfig, "bland": OutOfDomainConfig}[kind]


def _settings(cls: type[Any], values: Any, place: str) -> Any:
    config, problems = parse_group(cls, values, place)
    raise_problems(problems)
    return config


def _phantom(values: Mapping[str, Any], folders: Mapping[str, Path], out: Path) -> None:
    from cxrlab.data.phantom.corpus import make_phantom

    make_phantom(_settings(_config("phantom"), values, "phantom"), out)


def _scenes(values: Mapping[str, Any], folders: Mapping[str, Path], out: Path) -> None:
    from cxrlab.data.scenes import make_scenes

    make_scenes(_settings(_config("scenes"), values, "scenes"), out)


def _bland(values: Mapping[str, Any], folders: Mapping[str, Path], out: Path) -> None:
    from cxrlab.extraction.out_of_domain_corpus import make_out_of_domain_corpus

    make_out_of_domain_corpus(_settings(_config("bland"), values, "bland"), out)


def _structured(values: Mapping[str, Any], folders: Mapping[str, Path], out: Path) -> None:
    """`of` another corpus, by the rules or a text `model`."""
    from cxrlab.data.config import StructureConfig
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.data.structuring.run import structure_corpus
    from cxrlab.evaluation.open_models import open_text_model

    given = {key: value for key, value in values.items() if key != "of"}
    config = _settings(StructureConfig, given, "structured")
    source = load_corpus(folders[values["of"]])
    if config.model == RULES:
        structure_corpus(source, config, out)
        return
    with open_text_model(config.model, config.llm, [source.egress_data], out) as model:
        structure_corpus(source, config, out, model)


def _composed(values: Mapping[str, Any], folders: Mapping[str, Path], out: Path) -> None:
    """Members by name of earlier corpora, each with settings of `data compose`."""
    from cxrlab.data.compose import compose_corpus, plan
    from cxrlab.data.config import ComposeConfig

    members = {name: {**(member or {}), "corpus": str(folders[name])} for name, member in values.items()}
    compose_corpus(plan(ComposeConfig(members=members, name=out.name)), out)


_MAKERS = {
    "phantom": _phantom,
    "scenes": _scenes,
    "bland": _bland,
    "structured": _structured,
    "composed": _composed,
}


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
    """The name of a pool with names of corpora replaced by folders, also inside a mixture.

    Args:
        pool: Such as `corpus:query@train` or `mix:0.1:corpus:query+scenes`; other pools stay as they are. `folder:NAME`
            is all pictures in `images` of that corpus, whatever they show; another folder is meant as it is written.
        folders: Name → folder of each corpus.
        place: What the setting is, for the sentence about a corpus that is not in the list.
    """

    def reached(found: re.Match[str]) -> str:
        kind, name = found.groups()
        if kind == "folder":
            return f"folder:{folders[name] / 'images'}" if name in folders else found[0]
        return f"corpus:{_folder(name, folders, place)}"

    return _IN_POOL.sub(reached, pool)


def _folder(name: Any, folders: Mapping[str, Path], place: str) -> Path:
    if name not in folders:
        raise ConfigError(
            f"{place}: there is no corpus {short_repr(name)} in the list.{did_you_mean(str(name), folders)} "
            f"Corpora: {', '.join(folders)}."
        )
    return folders[name]
