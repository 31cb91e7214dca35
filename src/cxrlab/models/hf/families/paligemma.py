"""PaliGemma: one image size; its processor itself writes begin token and line break around the prompt."""

from __future__ import annotations

from cxrlab.models.hf.families import Family, FeatureSource


class PaliGemma(Family):
    """Prompt tokens (type 0) attend in both directions, tokens of the report (type 1) backwards only."""

    model_types = ("paligemma",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    has_grid = True
    processors = ("PaliGemmaProcessor",)
    image_suffix = ""
    prompt_separator = ""
    report_token_type = 1
