"""From a model's name to what an audit sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cxrlab.core.endpoints import (
    MIN_PERMISSION_WORDS,
    EgressData,
    hide_credentials,
    is_address,
    is_loopback,
    is_valid_permission,
)
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.evaluation.open_models import open_model
from cxrlab.models.hf.model import HfModel
from cxrlab.models.local_files import DUAL_ENCODERS, locate
from cxrlab.models.names import load_encoder
from cxrlab.robustness.encoder_target import EncoderTarget
from cxrlab.robustness.labels import AskedLabel
from cxrlab.robustness.smoothed_target import SmoothedTarget
from cxrlab.robustness.smoothing_config import parse_smoothed
from cxrlab.robustness.targets import ReportTarget, Target, WordsTarget

if TYPE_CHECKING:
    from cxrlab.models.load_settings import LoadSettings
    from cxrlab.robustness.config import RobustnessConfig


def load_target(
    key: str,
    name: str,
    labels: Sequence[AskedLabel],
    settings: RobustnessConfig,
    *,
    shown: Sequence[EgressData] = (),
    sentences: str = "report/1",
) -> Target:
    """The model of this name as a target.

    Args:
        key: Its short name.
        name: As the user wrote it; an encoder where it opens as one, smoothed where it says so.
        labels: What is asked about.
        settings: Of the audit.
        shown: What it will be shown; an address elsewhere is asked nothing where that is not known.
        sentences: Wording of the zero-shot classes.
    """
    smoothed = parse_smoothed(name)
    _, inner = smoothed or (None, name)
    if is_encoder(inner, settings.loading):
        if smoothed:
            raise ConfigError(f"'{name}' smooths an encoder; only closed answers of report models are smoothed.")
        return EncoderTarget(key, name, labels, load_encoder(name, settings.loading), sentences)
    if is_address(inner):
        _check_leave(name, settings, remote=not is_loopback(inner))  # before anything connects
    model = open_model(inner, settings.loading, shown)
    if not is_address(inner):
        _check_leave(name, settings, remote=model.capabilities.black_box)
    if smoothed:
        if not isinstance(model, HfModel):
            raise ConfigError(f"'{name}' cannot be smoothed: {inner} answers no closed questions; name open weights.")
        if not all(label.questions for label in labels):
            raise ConfigError(f"'{name}' votes on closed questions and none is asked; leave out --questions none.")
        return SmoothedTarget(key, name, labels, model, settings, sigma=smoothed[0])
    if isinstance(model, HfModel):
        return ReportTarget(key, name, labels, model, settings.decoding, settings.against, settings.wishes)
    return WordsTarget(key, name, labels, model, settings.decoding)


def _check_leave(name: str, settings: RobustnessConfig, *, remote: bool) -> None:
    """Refuse to test what runs elsewhere without its owner's leave; what answers on this machine needs none."""
    if remote and not is_valid_permission(settings.i_am_authorised):
        raise ConfigError(
            f"'{hide_credentials(name)}' runs elsewhere; an audit of it needs the owner's leave. Say who may test it and "
            f'why with --i-am-authorised "WHO AND WHY" (at least {MIN_PERMISSION_WORDS} words), which is kept and shown on the '
            "page."
        )


def is_encoder(name: str, loading: LoadSettings) -> bool:
    """Whether a name stands for a contrastive encoder: the built-in one, or a folder that says so."""
    kind, _, argument = name.partition(":")
    if kind != "hf":
        return name == "builtin:encoder"
    file = locate(argument, loading) / "config.json"
    found = read_json(file) if file.is_file() else None
    return isinstance(found, dict) and found.get("model_type") in (*DUAL_ENCODERS, "clip", "siglip", "siglip2")
