"""Whether a written report finds its own image among all, by a contrastive encoder, before and after alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cxrlab.evaluation.inference import Images
from cxrlab.metrics.retrieval import first_match_rank, recall
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.names import load_encoder
from cxrlab.preference.asked_twice import AFTER, BEFORE, Asked, batches, paired
from cxrlab.preference.train_config import Measure

KS = (1, 5, 10)


def found_images(
    images: Images, studies: Sequence[Asked], reports: Mapping[str, Sequence[str]], settings: Measure, seed: int
) -> dict[str, Any]:
    """Recall@1, 5 and 10 of the image by the report that was written for it, among the images of all studies.

    Args:
        images: What the encoder is shown.
        studies: In order.
        reports: Those of the model before and after, in the same order.
        settings: With the name of the encoder.
        seed: Of the resamples.
    """
    encoder = load_encoder(str(settings.encoder), LoadSettings())
    shown = [
        encoder.embed_images([images.image(study.id) for study in batch])
        for batch in batches(studies, settings.batch_size, "embedding images")
    ]
    gallery, keys = np.concatenate(shown), np.arange(len(studies))
    places = {
        side: first_match_rank(encoder.embed_texts([text or "." for text in reports[side]]), keys, gallery, keys)
        for side in (BEFORE, AFTER)
    }
    patients = [study.patient for study in studies]
    told: dict[str, Any] = {"encoder": settings.encoder, "gallery": len(studies)}
    for k in KS:
        hits = [recall("text_to_image", places[side], k).by_pair.tolist() for side in (BEFORE, AFTER)]
        told[f"recall@{k}"] = paired(f"recall@{k}", hits[0], hits[1], patients, seed)
    return told
