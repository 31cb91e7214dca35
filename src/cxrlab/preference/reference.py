"""How likely the model found every report before it was aligned: computed once, kept on disk.

A reference-based loss asks for these numbers at every step, and they never change. Kept, no second model is
held in memory and no second pass is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cxrlab.core.progress import track
from cxrlab.preference.objective import Text, log_probabilities
from cxrlab.preference.rows import TwinRows
from cxrlab.training.array_store import ArrayStore
from cxrlab.training.fingerprint import weights_key
from cxrlab.training.reporter import ReporterLoss

_BLOCK = 4096  # twins whose reports are sorted by length together


def reference_log_probabilities(
    reporter: ReporterLoss, rows: TwinRows, folder: Path, *, precision: str, batch_size: int, weights: str | None = None
) -> NDArray[np.float32]:
    """The log π_ref of both reports of every item, float32 [N, 2]; from the store where they are there already.

    Args:
        reporter: The model as it is before the first step, on its device; new adapters change nothing yet.
        rows: What will be learnt.
        folder: Where stores stand; may be shared between runs.
        precision: Of the training: the same sums are taken.
        batch_size: Twins at once.
        weights: A hash of the model without new adapters, where it has such; its own when left out.
    """
    told = f"{rows.key} {weights or weights_key(reporter)} {precision} {rows.reports.max_length}"
    key = hashlib.blake2b(told.encode(), digest_size=12).hexdigest()
    store = ArrayStore(folder / f"reference-{key}", (len(rows), 2), np.float32)
    was = reporter.training
    reporter.eval()
    try:
        store.fill(lambda start: _blocks(reporter, rows, start, precision, batch_size))
    finally:
        reporter.train(was)
    return np.asarray(store.read(), np.float32)


def _blocks(
    reporter: ReporterLoss, rows: TwinRows, start: int, precision: str, batch_size: int
) -> Iterator[NDArray[np.generic]]:
    blocks = range(start, len(rows), _BLOCK)
    for first in blocks:
        items = np.arange(first, min(first + _BLOCK, len(rows)))
        order = np.argsort(-rows.lengths[items], kind="stable")
        found = np.zeros((len(items), 2), np.float32)
        label = "reference log-probabilities" + (f", from {first:,} of {len(rows):,}" if len(blocks) > 1 else "")
        batches = [order[place : place + batch_size] for place in range(0, len(items), batch_size)]
        for chosen in track(batches, label, len(items), size=len):
            found[chosen] = _sums(reporter, rows, items[chosen], precision)
        yield found


def _sums(reporter: ReporterLoss, rows: TwinRows, items: NDArray[np.int64], precision: str) -> NDArray[np.float32]:
    device = next(reporter.parameters()).device
    batch = {name: value.to(device) for name, value in rows.__getitems__(items.tolist()).items()}
    seen = batch.get("features"), batch.get("images")
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        if rows.desirable is None:
            pair = log_probabilities(reporter, Text.of(batch), *seen, copies=2)[0].view(2, -1)
        else:
            texts = Text.of(batch), Text.of(batch, "strange_")
            pair = torch.stack([log_probabilities(reporter, text, *seen)[0] for text in texts])
    return np.asarray(pair.T.float().cpu().numpy(), np.float32)
