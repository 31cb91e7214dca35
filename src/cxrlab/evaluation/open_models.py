"""Models by name, with corpora behind those that look among images."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.asking import Asking
from cxrlab.core.budget import Budget
from cxrlab.core.connection import check_encrypted
from cxrlab.core.egress import FEWEST_WORDS, Shown, all_synthetic, check_egress, says_who_and_why
from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.progress import track
from cxrlab.core.streams import Remarks
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import FRONTAL, frontal
from cxrlab.models.baselines import Exemplar
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.names import load_model as load_named
from cxrlab.models.names import load_text_model
from cxrlab.models.text_model_cache import CachedTextModel

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
            of `loading.connection.may_leave`.
        settings: Single settings of loading in its place or on top of it, such as `device="cuda"`.
    """
    asked = (loading or LoadSettings()).but(**settings)
    if permission is not None:
        if not says_who_and_why(permission):
            raise ConfigError(
                f"permission={permission!r} does not say who and why; write at least {FEWEST_WORDS} words."
            )
        asked = asked.but(connection=replace(asked.connection, may_leave=permission))
    return load_named(name, train_images, asked)


def open_model(
    name: str, loading: LoadSettings | None, shown: Iterable[Shown], flag: str = "--loading.connection"
) -> ImageToText:
    """The model of this name for whoever shows it a corpus: what may not be sent elsewhere is refused first.

    Args:
        name: Such as `hf:FOLDER` or `https://HOST/v1#MODEL`.
        loading: How it is loaded, with the leave to send patients' data away.
        shown: Everything that it will be shown.
        flag: Name of the connection's flags, for messages.
    """
    loading, shown = loading or LoadSettings(), tuple(shown)
    check_egress(name, shown, loading.connection.may_leave, flag)
    check_encrypted(name, loading.connection, flag)
    return load_named(name, train_images, loading, synthetic=all_synthetic(shown))


def train_images(corpus: str) -> Iterator[Exemplar]:
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
            image = source.image(study, frontal(study))
            yield Exemplar(study.id, study.patient, image, text.strip())
    if passed:
        why = ", ".join(f"{reason}: {number:,}" for reason, number in passed.items())
        Remarks(sys.stderr).write(f"{corpus}: {passed.total():,} of {count:,} train studies are left out ({why})\n")


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
    asking: Asking,
    shown: Iterable[Shown],
    folder: Path | None = None,
    flag: str = "--asking.connection",
    budget: Budget | None = None,
) -> CachedTextModel:
    """The text model of this name, asked everything once.

    Args:
        name: Such as `hf:FOLDER` or `http://127.0.0.1:8000/v1#MODEL`.
        asking: Cache, limit and connection.
        shown: What its prompts will hold; patients' data leave this machine only with leave.
        folder: Run folder, in which requests and answers are kept; None keeps them in memory, and then nothing of a
            patient's leaves this machine.
        flag: Name of the connection's flags, for messages.
        budget: The purse, where several models of a run share one; one of its own when None.
    """
    shown = tuple(shown)
    check_egress(name, shown, asking.connection.may_leave, flag, kept=folder is not None)
    check_encrypted(name, asking.connection, flag)
    loading = LoadSettings(**dataclasses.asdict(asking.loading))
    try:
        model = load_text_model(name, asking.connection, loading, synthetic=all_synthetic(shown))
    except CxrlabError as error:
        # Messages of models name the flags of commands that load one model; here they stand below those of asking.
        group = flag.removesuffix(".connection")
        error.args = (str(error).replace("--loading.", f"{group}.loading."), *error.args[1:])
        raise
    return CachedTextModel(model, asking, folder, budget)
