"""From a name to a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import Capabilities
from cxrlab.models.baselines import Stub
from cxrlab.models.load_settings import LoadSettings
from cxrlab.robustness import audited_models
from cxrlab.robustness.audited_models import (
    AuditedEncoder,
    AuditedReportModel,
    AuditedTextModel,
    is_encoder,
    load_audited_model,
)
from cxrlab.robustness.audited_studies import labels_of_kind
from cxrlab.robustness.config import RobustnessConfig

LABELS = labels_of_kind("chexpert", "own")[:2]
REMOTE, HERE = "http://elsewhere.example/v1#model", "http://127.0.0.1:9/v1#model"


def opened(name: str, **changes: Any) -> Any:
    config = RobustnessConfig(model=name, data=Path("corpus"), loading=LoadSettings(device="cpu"), **changes)
    return load_audited_model("a", name, LABELS, config)


def test_a_folder_tells_whether_it_is_an_encoder(llava_folder: Path, encoder_folder: Path, tmp_path: Path) -> None:
    assert is_encoder(f"hf:{encoder_folder}", LoadSettings()) and not is_encoder(f"hf:{llava_folder}", LoadSettings())
    assert is_encoder("builtin:encoder", LoadSettings()) and not is_encoder("builtin:reporter", LoadSettings())
    assert not is_encoder("stub:normal", LoadSettings()) and not is_encoder(REMOTE, LoadSettings())
    (tmp_path / "config.json").write_text('{"model_type": "siglip"}')
    assert is_encoder(f"hf:{tmp_path}", LoadSettings())


def test_each_kind_of_model_becomes_its_kind_of_target(llava_folder: Path, encoder_folder: Path) -> None:
    report, encoder, words = opened(f"hf:{llava_folder}"), opened(f"hf:{encoder_folder}"), opened("stub:normal")
    assert isinstance(report, AuditedReportModel) and report.gradients and report.scores
    assert isinstance(encoder, AuditedEncoder) and encoder.gradients and not encoder.generates_reports
    assert type(words) is AuditedTextModel and not words.gradients and not words.scores


class Remote(Stub):
    """A model that runs elsewhere."""

    capabilities = Capabilities(black_box=True)  # type: ignore[assignment]


def test_a_model_that_runs_elsewhere_needs_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        audited_models, "open_model", lambda name, loading, shown: asked.append(name) or Remote("normal")
    )
    for name in (REMOTE, f"smoothed:0.1:{REMOTE}"):
        with pytest.raises(ConfigError, match="needs its owner's permission"):
            opened(name)
    assert not asked, "an address is refused before it is opened"
    with pytest.raises(ConfigError, match="needs its owner's permission"):
        opened(REMOTE, i_am_authorised="yes")
    assert type(opened(REMOTE, i_am_authorised="J. Doe, owner")) is AuditedTextModel
    with pytest.raises(ConfigError, match="answers no closed questions"):
        opened(f"smoothed:0.1:{REMOTE}", i_am_authorised="J. Doe, owner")
    assert set(asked) == {REMOTE}
    assert type(opened(HERE)) is AuditedTextModel, "a model on this machine needs no permission"


def test_a_model_that_reports_itself_remote_needs_permission_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audited_models, "open_model", lambda name, loading, shown: Remote("normal"))
    with pytest.raises(ConfigError, match="needs its owner's permission"):
        opened("stub:normal")
    assert type(opened("stub:normal", i_am_authorised="J. Doe, owner")) is AuditedTextModel
