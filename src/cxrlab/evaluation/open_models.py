"""Models by name, with corpora behind those that look among images."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cxrlab.core.endpoints import (
    MIN_PERMISSION_WORDS,
    EgressData,
    all_synthetic,
    check_egress,
    check_encrypted,
    check_key_recipients,
    is_valid_permission,
)
from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.llm import Budget, LLMConfig
from cxrlab.core.protocols import Generated
from cxrlab.core.terminal import NoticeStream, track
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import FRONTAL, frontal_index
from cxrlab.models.baselines import Exemplar
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.names import load_model as load_named
from cxrlab.models.names import load_text_model
from cxrlab.models.text_model_cache import CachedTextModel, purse

if TYPE_CHECKING:
    from cxrlab.core.protocols import ImageToText


def load_model(
    name: str, loading: LoadSettings | None = None, *, permission: str | None = None, **settings: Any
) -> ImageToText:
    """The model of this name (`cxrlab models ls` lists how to name one).

    A model at an address that is not on this machine refuses whatever it is asked, unless there is a permission.

    Args:
        name: Such as `hf:FOLDER`.
        loading: Device, precision, prompts …
        permission: Who allowed patients' images and text to be sent to an address elsewhere, and why; takes the place
            of `loading.connection.egress_permission`.
        settings: Single settings of loading in its place or on top of it, such as `device="cuda"`.
    """
    asked = (loading or LoadSettings()).but(**settings)
    if permission is not None:
        if not is_valid_permission(permission):
            raise ConfigError(
                f"permission={permission!r} does not say who and why; write at least {MIN_PERMISSION_WORDS} words."
            )
        asked = asked.but(connection=replace(asked.connection, egress_permission=permission))
    return load_named(name, read_exemplars, asked)


def open_model(
    name: str, loading: LoadSettings | None, shown: Iterable[EgressData], flag: str = "--loading.connection"
) -> ImageToText:
    """The model of this name for whoever shows it a corpus: what may not be sent elsewhere is refused first.

    Args:
        name: Such as `hf:FOLDER` or `https://HOST/v1#MODEL`.
        loading: How it is loaded, with the leave to send patients' data away.
        shown: Everything that it will be shown.
        flag: Name of the connection's flags, for messages.
    """
    loading, shown = loading or LoadSettings(), tuple(shown)
    check_egress(name, shown, loading.connection.egress_permission, flag)
    check_encrypted(name, loading.connection, flag)
    return load_named(name, read_exemplars, loading, synthetic=all_synthetic(shown))


def read_exemplars(corpus: str) -> Iterator[Exemplar]:
    """The frontal image and findings text of every study in the train split of a corpus folder.

    A study without findings text or without a frontal image is passed over, and how many are is written to standard
    error; an image whose view is unknown counts as no frontal image. An image that cannot be read, a patient of
    the train split who is also in another one, or a split with nothing to look among is a `DataError`.
    """
    source, passed = load_corpus(Path(corpus)), Counter[str]()
    count = _check_split(source)
    for study in track(source.studies("train"), "indexing images", total=count):
        text = study.sections.findings if study.sections else None
        if not (text and text.strip()):
            passed["no findings text"] += 1
        elif not any(image.view in FRONTAL for image in study.images):
            passed["no image known to be frontal"] += 1
        else:
            image = source.image(study, frontal_index(study))
            yield Exemplar(study.id, study.patient, image, text.strip())
    if passed:
        why = ", ".join(f"{reason}: {number:,}" for reason, number in passed.items())
        NoticeStream(sys.stderr).write(
            f"{corpus}: {passed.total():,} of {count:,} train studies are left out ({why})\n"
        )


def _check_split(corpus: Corpus) -> int:
    """Number of train studies; a patient in two splits would let an image find itself at another visit."""
    train, other, count = set(), {}, 0
    for study in corpus.studies():
        if study.split == "train":
            train.add(study.patient)
            count += 1
        elif study.split is not None:
            other[study.patient] = study.split
    if leaking := sorted(train & other.keys()):
        raise DataError(
            f"{corpus.path}: {len(leaking)} patients of the train split are in another one too (for example "
            f"'{leaking[0]}', also in {other[leaking[0]]}); keep each patient in one split."
        )
    if not count:
        raise DataError(f"{corpus.path} has no study in its train split, so there is no image to look among.")
    return count


def open_text_model(
    name: str,
    llm: LLMConfig,
    shown: Iterable[EgressData],
    folder: Path | None = None,
    flag: str = "--llm.connection",
    budget: Budget | None = None,
) -> CachedTextModel:
    """The text model of this name, asked everything once.

    Args:
        name: Such as `hf:FOLDER` or `http://127.0.0.1:8000/v1#MODEL`.
        llm: Cache, limit and connection.
        shown: What its prompts will hold; patients' data leave this machine only with leave.
        folder: Run folder, in which requests and answers are kept; None keeps them in memory, and then nothing of a
            patient's leaves this machine.
        flag: Name of the connection's flags, for messages.
        budget: The purse, where several models of a run share one; one of its own when None.
    """
    shown = tuple(shown)
    check_egress(name, shown, llm.connection.egress_permission, flag, has_run_folder=folder is not None)
    check_encrypted(name, llm.connection, flag)
    loading = LoadSettings(**dataclasses.asdict(llm.loading))
    try:
        model = load_text_model(name, llm.connection, loading, synthetic=all_synthetic(shown))
    except CxrlabError as error:
        # Messages of models name the flags of commands that load one model; here they stand below those of asking.
        group = flag.removesuffix(".connection")
        error.args = (str(error).replace("--loading.", f"{group}.loading."), *error.args[1:])
        raise
    return CachedTextModel(model, llm, folder, budget)


class TextModels:
    """Text models by name, each opened when it is first wanted and once; use it in a `with` block.

    Args:
        llm: Cache, limit and connection.
        shown: What their prompts will hold; patients' data leave this machine only with leave.
        folder: Run folder, in which requests and answers are kept; None keeps them in memory.
    """

    def __init__(self, llm: LLMConfig, shown: Iterable[EgressData] = (), folder: Path | None = None) -> None:
        self._llm, self._shown, self._folder = llm, tuple(shown), folder
        self._budget = purse(llm)  # one for all: the limit is that of the run
        self._open: dict[str, CachedTextModel] = {}

    def __call__(self, name: str) -> CachedTextModel:
        """The model of this name; egress is checked before anything connects."""
        if name not in self._open:
            check_key_recipients((*self._open, name), self._llm.connection.key_variable)
            model = open_text_model(name, self._llm, self._shown, self._folder, budget=self._budget)
            model.recall()  # before another model spends what this one has spent already
            self._open[name] = model
        return self._open[name]

    def close(self) -> None:
        """Close the files of every model."""
        with contextlib.ExitStack() as files:  # closes every one, also when one of them fails
            for model in self._open.values():
                files.callback(model.close)

    def __enter__(self) -> TextModels:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class UnopenedModel:
    """A text model that is named and never asked: enough to find out whether a judge exists.

    Args:
        name: Of the model.
    """

    name: str

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """Nothing is answered."""
        raise NotImplementedError(f"'{self.name}' was not opened")
