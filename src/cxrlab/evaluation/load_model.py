"""Open models by name, after the check of what data they may receive."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.egress import (
    MIN_PERMISSION_WORDS,
    EgressData,
    all_synthetic,
    check_egress,
    check_encrypted,
    check_key_recipients,
    is_address,
    is_valid_permission,
)
from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.llm_requests import Budget, LLMConfig
from cxrlab.core.model_interfaces import Generated
from cxrlab.core.terminal import NoticeStream, track
from cxrlab.data.corpus import load_corpus
from cxrlab.data.views import FRONTAL, frontal_index
from cxrlab.models.baselines import Exemplar
from cxrlab.models.llm_cache import CachedTextModel, new_budget
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_registry import load_text_model, model_class, parse_name

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import ImageToText


def load_model(
    name: str, loading: LoadSettings | None = None, *, permission: str | None = None, **settings: Any
) -> ImageToText:
    """The model of this name (`cxrlab models ls` lists how to name one).

    A model at an address that is not on this machine raises an error at every request without a permission.

    Args:
        name: Such as `hf:FOLDER`.
        loading: Device, precision, prompts …
        permission: Who allowed patients' images and text to be sent to an address elsewhere, and why; replaces
            `loading.connection.egress_permission`.
        settings: Single settings that replace those of `loading`, such as `device="cuda"`.
    """
    merged = (loading or LoadSettings()).but(**settings)
    if permission is not None:
        if not is_valid_permission(permission):
            raise ConfigError(
                f"permission={permission!r} is too short; name who allowed it and why, in at least {MIN_PERMISSION_WORDS} words."
            )
        merged = merged.but(connection=replace(merged.connection, egress_permission=permission))
    return _load_by_name(name, merged, synthetic=False)


def open_model(
    name: str, loading: LoadSettings | None, data: Iterable[EgressData], flag: str = "--loading.connection"
) -> ImageToText:
    """The model of this name for this data; data that may not be sent to its address raises an error first.

    `flag` is the name of the connection's flags in messages.
    """
    loading, data = loading or LoadSettings(), tuple(data)
    check_egress(name, data, loading.connection.egress_permission, flag)
    check_encrypted(name, loading.connection, flag)
    return _load_by_name(name, loading, synthetic=all_synthetic(data))


def _load_by_name(name: str, loading: LoadSettings, *, synthetic: bool) -> ImageToText:
    """With `synthetic`, all data sent is known to be synthetic, so that a remote model needs no permission."""
    more = {"synthetic": synthetic} if is_address(name) else {}
    model: ImageToText = model_class(name).load(parse_name(name).argument, read_exemplars, loading, **more)
    return model


def read_exemplars(corpus: str) -> Iterator[Exemplar]:
    """The frontal image and findings text of every study in the train split of a corpus folder.

    Studies without findings text or without an image of a known frontal view are left out, and counted on standard
    error. An unreadable image, an empty split, or a patient who is also in another split, where an image could find
    itself at another visit, raises `DataError`.
    """
    source, skipped = load_corpus(Path(corpus)), Counter[str]()
    train, other, count = set(), {}, 0
    for study in source.studies():
        if study.split == "train":
            train.add(study.patient)
            count += 1
        elif study.split is not None:
            other[study.patient] = study.split
    if leaking := sorted(train & other.keys()):
        raise DataError(
            f"{source.path}: {len(leaking)} patients of the train split are in another one too (for example "
            f"'{leaking[0]}', also in {other[leaking[0]]}); keep each patient in one split."
        )
    if not count:
        raise DataError(f"{source.path} has no study in its train split, so there is no image to retrieve.")
    for study in track(source.studies("train"), "indexing images", total=count):
        text = study.sections.findings if study.sections else None
        if not (text and text.strip()):
            skipped["no findings text"] += 1
        elif not any(image.view in FRONTAL for image in study.images):
            skipped["no image known to be frontal"] += 1
        else:
            image = source.image(study, frontal_index(study))
            yield Exemplar(study.id, study.patient, image, text.strip())
    if skipped:
        why = ", ".join(f"{reason}: {number:,}" for reason, number in skipped.items())
        NoticeStream(sys.stderr).write(
            f"{corpus}: {skipped.total():,} of {count:,} train studies are left out ({why})\n"
        )


def open_text_model(
    name: str,
    llm: LLMConfig,
    data: Iterable[EgressData],
    folder: Path | None = None,
    flag: str = "--llm.connection",
    budget: Budget | None = None,
) -> CachedTextModel:
    """The text model of this name, which is asked each question once.

    Args:
        name: Such as `hf:FOLDER` or `http://127.0.0.1:8000/v1#MODEL`.
        llm: Cache, limits and connection.
        data: Contained in its prompts; patients' data may be sent elsewhere only with permission.
        folder: Run folder for requests and answers; None keeps them in memory, and then no patient's data may be sent
            off this machine.
        flag: Name of the connection's flags, for messages.
        budget: Shared by the models of a run; one of its own when None.
    """
    data = tuple(data)
    check_egress(name, data, llm.connection.egress_permission, flag, has_run_folder=folder is not None)
    check_encrypted(name, llm.connection, flag)
    loading = LoadSettings(**dataclasses.asdict(llm.loading))
    try:
        model = load_text_model(name, llm.connection, loading, synthetic=all_synthetic(data))
    except CxrlabError as error:
        # Messages of models name the flags of commands that load one model; here they have another prefix.
        group = flag.removesuffix(".connection")
        error.args = (str(error).replace("--loading.", f"{group}.loading."), *error.args[1:])
        raise
    return CachedTextModel(model, llm, folder, budget)


class TextModels:
    """Text models by name, each opened once, on first use; use it in a `with` block. See `open_text_model`."""

    def __init__(self, llm: LLMConfig, data: Iterable[EgressData] = (), folder: Path | None = None) -> None:
        self._llm, self._data, self._folder = llm, tuple(data), folder
        self._budget = new_budget(llm)  # one for all: the limit is that of the run
        self._open: dict[str, CachedTextModel] = {}

    def __call__(self, name: str) -> CachedTextModel:
        """The model of this name; egress is checked before anything connects."""
        if name not in self._open:
            check_key_recipients((*self._open, name), self._llm.connection.key_variable)
            model = open_text_model(name, self._llm, self._data, self._folder, budget=self._budget)
            model.recall()  # counts what earlier runs have spent before another model spends it
            self._open[name] = model
        return self._open[name]

    def close(self) -> None:
        """Close the files of every model."""
        with contextlib.ExitStack() as files:  # closes all of them, even when one fails
            for model in self._open.values():
                files.callback(model.close)

    def __enter__(self) -> TextModels:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class UnopenedModel:
    """A text model that is only a name: enough to check whether a judge exists."""

    name: str

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """Always raises."""
        raise NotImplementedError(f"'{self.name}' was not opened")
