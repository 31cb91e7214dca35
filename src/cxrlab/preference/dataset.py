"""Data set of preference training: pairs and single judged reports from a file, checked against their corpus.

    {"id": "s1", "chosen": "…", "rejected": "…", "judge": "green:rules", "chosen_score": 0.8, "rejected_score": 0.4}
    {"id": "s1", "report": "…", "desirable": true, "score": 0.8}

A row that cannot be used is refused with its file and line.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.errors import DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.records import PreferencePair
from cxrlab.core.terminal import track
from cxrlab.data.card import known_collections
from cxrlab.data.config import ContextConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.preference.candidate_files import same_text
from cxrlab.preference.config import LOSSES, PAIRS_FILE, UNPAIRED_FILE
from cxrlab.preference.losses import OTHER, log_probabilities, own_and_other
from cxrlab.training.image_cache import ArrayStore, Images
from cxrlab.training.image_features import Features
from cxrlab.training.image_text import ImageTextDataset
from cxrlab.training.report_dataset import ReportDataset
from cxrlab.training.run_folder import weights_key
from cxrlab.training.samples import UNREAD, Sample, Source, StudyInputs, Unused, find_inputs
from cxrlab.training.trainer import ITEMS


@dataclass(frozen=True)
class Row:
    """One row of a file: the chosen and the rejected report of a study, or one report that is desirable or not."""

    place: str
    id: str
    first: str
    second: str | None = None
    desirable: bool | None = None


@dataclass(frozen=True, eq=False)
class Judged:
    """What preference training learns from.

    Args:
        source: Two samples per item: the chosen and the rejected report, or a single report and one of another study.
    """

    source: Source
    desirable: NDArray[np.bool_] | None = None  # whether each single report is desirable, [N]; None for pairs

    def __len__(self) -> int:
        return len(self.source.samples) // 2


def read_preferences(
    path: Path,
    data: Path,
    *,
    paired: bool,
    held_out: Sequence[str] = ("test",),
    n: int | None = None,
    seed: int = 0,
    context: ContextConfig | None = None,
) -> Judged:
    """The rows of a file with their images.

    Args:
        path: Run of `prefer pair`, or a file.
        paired: Pairs, or single reports; a pair can be read as two single reports.
        held_out: Splits that must not be used.
        n: Number of rows drawn; all when None.
        seed: Decides which rows are drawn, and which report of another study is put beside a single one.
    """
    file = path
    if path.is_dir():
        single = path / UNPAIRED_FILE
        file = single if not paired and single.is_file() else path / PAIRS_FILE
        if not file.is_file():
            raise DataError(f"{path} has no {PAIRS_FILE}; name a run of `cxrlab prefer pair`, or a file.")
    rows = list(_rows(file, paired=paired))
    if not rows:
        raise DataError(f"{file} holds no row; there is nothing to learn from.")
    corpus = load_corpus(data)
    wanted = {row.id for row in rows}
    studies = {study.id: study for study in corpus.studies(without=UNREAD) if study.id in wanted}
    inputs: dict[str, StudyInputs] = {}
    context = context or ContextConfig()
    dropped: dict[str, str] = {}
    for row in rows:
        study = studies.get(row.id)
        if study is None:
            raise DataError(f"{row.place}: there is no study '{row.id}' in {corpus.path}; name the corpus it is of.")
        if study.split in held_out:
            raise DataError(
                f"{row.place}: study '{row.id}' is of the {study.split} split, which is kept for measuring; take its "
                "rows out."
            )
        if row.id not in inputs and row.id not in dropped:
            found = find_inputs(corpus, study, context)
            if isinstance(found, str):
                if context.missing != "drop":
                    raise DataError(f"{row.place}: study '{row.id}' has {found}; take its rows out.")
                dropped[row.id] = found
                continue
            for image in found.images:
                if not image.path.is_file():
                    raise DataError(
                        f"{row.place}: the image of study '{row.id}' is missing ({image.path}); restore it."
                    )
            inputs[row.id] = found
    rows = [row for row in rows if row.id not in dropped]
    if not rows:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in Counter(dropped.values()).items())
        raise DataError(f"missing=drop leaves none of the studies of {file} ({reasons}).")
    if n is not None and n < len(rows):  # only now: a draw must not hide a row that is wrong
        rows = [rows[number] for number in sorted(generator(seed, "pairs").permutation(len(rows))[:n].tolist())]
    seconds = [row.second for row in rows] if paired else _reports_of_other_studies(rows, seed)
    samples = []
    for row, second in zip(rows, seconds, strict=True):
        images, indication, stated = inputs[row.id]
        samples += [Sample(row.id, images, indication, str(text), context=stated) for text in (row.first, second)]
    card = corpus.card
    source = Source(
        card.name,
        corpus.path,
        tuple(samples),
        unused=tuple(Unused(card.name, *pair, 0) for pair in Counter(dropped.values()).items()),
        collections=known_collections(card),
        synthetic=card.synthetic,
    )
    return Judged(source, None if paired else np.array([bool(row.desirable) for row in rows]))


def _rows(file: Path, *, paired: bool) -> Iterator[Row]:
    for number, record in read_jsonl(file):
        place = f"{file}:{number}"
        if "report" in record:
            if paired:
                able = " or ".join(name for name, kind in LOSSES.items() if not kind.paired)
                raise DataError(f"{place}: it is a single report; only loss.name={able} learns without pairs.")
            report, good = record["report"], record.get("desirable")
            if not isinstance(record.get("id"), str) or not isinstance(good, bool):
                raise DataError(f"{place}: a single report needs 'id' (text) and 'desirable' (true or false).")
            _refuse_empty(report, "report", place)
            yield Row(place, record["id"], report.strip(), desirable=good)
            continue
        try:
            pair = PreferencePair.from_json(record)
        except DataError as error:
            raise DataError(f"{place}: {error}") from None
        _refuse_empty(pair.chosen, "chosen", place)
        _refuse_empty(pair.rejected, "rejected", place)
        if same_text(pair.chosen) == same_text(pair.rejected):
            raise DataError(f"{place}: chosen and rejected are the same text, which teaches nothing; take the row out.")
        if paired:
            yield Row(place, pair.id, pair.chosen.strip(), pair.rejected.strip())
        else:
            yield Row(place, pair.id, pair.chosen.strip(), desirable=True)
            yield Row(place, pair.id, pair.rejected.strip(), desirable=False)


def _refuse_empty(text: object, name: str, place: str) -> None:
    if not isinstance(text, str):
        raise DataError(f"{place}: '{name}' must be the text of a report; correct the row or take it out.")
    if not text.strip():
        raise DataError(f"{place}: '{name}' is empty; a report needs words. Take the row out.")


def _reports_of_other_studies(rows: Sequence[Row], seed: int) -> list[str]:
    """For each row the report of a row of another study, drawn with the seed; each is used about once."""
    order = generator(seed, "strange").permutation(len(rows)).tolist()
    if len({row.id for row in rows}) < 2:
        raise DataError(
            "single reports of one study alone cannot be learnt from: they are compared with those of other studies."
        )
    found = [""] * len(rows)
    for place, number in enumerate(order):
        after = 1
        while rows[order[(place + after) % len(order)]].id == rows[number].id:
            after += 1
        found[number] = rows[order[(place + after) % len(order)]].first
    return found


@dataclass(frozen=True, eq=False)
class PreferenceDataset:
    """N items of two reports each, as `PreferenceLoss` takes them; see `Judged`.

    Args:
        reports: 2 N rows, of a LLaVA without images: rows 2 i and 2 i + 1 are those of item i.
        reference: log π_ref of both reports, float32 [N, 2]; None where it is not needed or not yet known.
    """

    reports: ReportDataset | ImageTextDataset
    images: Images | None = None  # of the rows; None when features replace them, or before they are opened
    features: Features | None = None  # of the frozen vision encoder for every image
    reference: NDArray[np.float32] | None = None
    desirable: NDArray[np.bool_] | None = None  # whether each single report is desirable, [N]; None for pairs

    def __len__(self) -> int:
        return len(self.reports) // 2

    @property
    def key(self) -> str:
        """A hash of the training data: tokens, images, and which reports are desirable."""
        digest = hashlib.blake2b(self.reports.key.encode(), digest_size=12)
        digest.update(str(self.images.key if self.images is not None else None).encode())
        if self.desirable is not None:
            digest.update(self.desirable.tobytes())
        return digest.hexdigest()

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of the longer report of each item, [N]."""
        return np.asarray(self.reports.lengths.reshape(-1, 2).max(axis=1))

    def __getitems__(self, items: list[int]) -> dict[str, Tensor]:
        """One batch: the chosen reports, then the rejected ones; of single reports the second ones apart, `other_…`."""
        chosen = np.asarray(items, np.int64)
        if self.desirable is None:
            batch = self._texts(np.concatenate([2 * chosen, 2 * chosen + 1]))
        else:
            batch = self._texts(2 * chosen)
            batch |= {f"{OTHER}{name}": value for name, value in self._texts(2 * chosen + 1).items()}
            batch["desirable"] = torch.from_numpy(self.desirable[chosen])
        if self.reference is not None:
            batch["reference"] = torch.from_numpy(np.array(self.reference[chosen]))
        if isinstance(self.reports, ReportDataset):
            numbers = self.reports.images_of(2 * chosen)
            if self.features is not None:
                batch["features"] = self.features[numbers]
            elif self.images is not None:
                batch["images"] = torch.from_numpy(self.images[numbers])
        batch[ITEMS] = torch.tensor([len(chosen)])
        return batch

    def _texts(self, rows: NDArray[np.int64]) -> dict[str, Tensor]:
        batch = self.reports.__getitems__(rows.tolist())
        del batch[ITEMS]
        return batch


_BLOCK = 4096  # items that are sorted by length together


def reference_log_probabilities(
    reporter: Any,
    rows: PreferenceDataset,
    folder: Path,
    *,
    precision: str,
    batch_size: int,
    weights: str | None = None,
) -> NDArray[np.float32]:
    """The log π_ref of both reports of every item, float32 [N, 2], from the cache where it has them.

    Args:
        reporter: The model before the first step, on its device; new adapters change nothing yet.
        folder: Folder of caches; runs may share it.
        batch_size: Items per batch.
        weights: A hash of the model without new adapters; computed from the model when left out.
    """
    inputs = f"{rows.key} {weights or weights_key(reporter)} {precision} {rows.reports.max_length}"
    key = hashlib.blake2b(inputs.encode(), digest_size=12).hexdigest()
    store = ArrayStore(folder / f"reference-{key}", (len(rows), 2), np.float32)
    was = reporter.training
    reporter.eval()
    try:
        store.fill(lambda start: _blocks(reporter, rows, start, precision, batch_size))
    finally:
        reporter.train(was)
    return np.asarray(store.read(), np.float32)


def _blocks(
    reporter: Any, rows: PreferenceDataset, start: int, precision: str, batch_size: int
) -> Iterator[NDArray[np.generic]]:
    blocks = range(start, len(rows), _BLOCK)
    for first in blocks:
        items = np.arange(first, min(first + _BLOCK, len(rows)))
        order = np.argsort(-rows.lengths[items], kind="stable")
        found = np.zeros((len(items), 2), np.float32)
        label = "reference log-probabilities" + (f", from {first:,} of {len(rows):,}" if len(blocks) > 1 else "")
        batches = [order[place : place + batch_size] for place in range(0, len(items), batch_size)]
        for chosen in track(batches, label, len(items), size=len):
            found[chosen] = batch_log_probabilities(reporter, rows, items[chosen].tolist(), precision)
        yield found


def batch_log_probabilities(
    reporter: Any, rows: PreferenceDataset, items: list[int], precision: str
) -> NDArray[np.float32]:
    """Log-probabilities of both reports of some items, float32 [K, 2]."""
    device = next(reporter.parameters()).device
    batch = {name: value.to(device) for name, value in rows.__getitems__(items).items()}
    del batch[ITEMS]
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        if rows.desirable is None:
            pair = log_probabilities(reporter, batch, copies=2)[0].view(2, -1)
        else:
            del batch["desirable"]
            pair = torch.stack([log_probabilities(reporter, one)[0] for one in own_and_other(batch)])
    return np.asarray(pair.T.float().cpu().numpy())
