"""What must be right before a query is spent: the images to measure on, their references, and the pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from cxrlab.core.endpoints import EgressData, check_egress, check_encrypted, check_key_recipients
from cxrlab.core.errors import DataError
from cxrlab.core.files import sha256_of
from cxrlab.core.records import Study
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.evaluation.metric_choice import select_metrics
from cxrlab.evaluation.score_inputs import parse_sections
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.fidelity import extra_cards
from cxrlab.extraction.pool_kinds import Folder, Images, Mix, with_split
from cxrlab.extraction.pools import Pool

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


def check_images_may_leave(config: ExtractConfig, pool: Pool, measured: Corpus) -> list[EgressData]:
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
