"""A model behind an input transformation: what it returns, who attacks it how, and both attacks side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import planted_targets as planted
import pytest
import torch
from pattern_model import PatternModel
from small_evidence import audit, image, lines, truth

from cxrlab.attacks.config import AttackSettings, Budget
from cxrlab.attacks.gradient import Pgd
from cxrlab.attacks.input_transformations import draws_by_pixels, parse_transformation
from cxrlab.core.errors import ConfigError
from cxrlab.robustness import audit as audits
from cxrlab.robustness.audited_models import AuditedDefendedModel, AuditedReportModel, load_audited_model
from cxrlab.robustness.audited_studies import Case, Label
from cxrlab.robustness.config import RobustnessConfig, parse_defended
from cxrlab.robustness.input_defences import input_defence_results, input_defence_warnings

EFFUSION = Label("pleural effusion", frozenset({"pleural effusion"}), ("Is there an effusion?",), ())
CASES = [Case(f"s{there}", f"p{there}", None, planted.PRESENT if there else planted.ABSENT, None,
              {"pleural effusion": there}) for there in (1, 0)]  # fmt: skip
NAMES = [case.id for case in CASES]


def settings(data: Path = Path("corpus"), **changes: Any) -> RobustnessConfig:
    return RobustnessConfig(**{"model": "m", "data": data, **changes})


def behind(transformation: str, **changes: Any) -> AuditedDefendedModel:
    model, given = PatternModel(), parse_transformation(transformation)
    return AuditedDefendedModel("b", f"defended:{given}:m", [EFFUSION], model, settings(**changes), given)  # type: ignore[arg-type]


def leaning() -> torch.Tensor:
    """An image along the pattern, and one against it."""
    sign = torch.tensor(planted.SIGN, dtype=torch.float32)[None, None]
    return 0.5 + 0.04 * torch.cat([sign, -sign]) - 0.5 * sign.mean() * sign


def test_everything_that_it_returns_is_of_the_transformed_image() -> None:
    target, shown = behind("noise:0.1"), leaning()
    given = target.transformation(shown, draws_by_pixels(shown, target._seed, "defence"))
    assert not torch.equal(given, shown)
    found, margins = target.examine(shown, CASES), PatternModel().margin(given)
    assert [one.label_probs["pleural effusion"] for one in found] == pytest.approx(torch.sigmoid(margins).tolist())
    assert [one.report for one in found] == [planted.PRESENT if one > 0 else planted.ABSENT for one in margins]
    assert [one.loss for one in found] == pytest.approx(
        PatternModel().losses(given, [case.reference or "" for case in CASES]).tolist()
    )
    assert found == target.examine(shown, CASES), "asked again, an audit gets the same draw"
    other = behind("noise:0.1", seed=8).examine(shown, CASES)
    assert [one.loss for one in other] != [one.loss for one in found]


@pytest.mark.parametrize("aim", ["report", "answers"])
@pytest.mark.parametrize("transformation", ["blur:1.2", "noise:0.05", "jpeg:20"])
def test_the_attack_that_knows_the_transformation_does_more(transformation: str, aim: str) -> None:
    """Half of the pattern is dropped by a blur or by JPEG; under noise neither attack has an advantage worth the name."""
    target, shown = behind(transformation), leaning()
    plain = AuditedReportModel(
        "a", "m", [EFFUSION], target.model, target._generator.decoding, "reference", target.goals
    )
    attack, moved = Pgd(AttackSettings(steps=10, random_start=False)), []
    for model in (plain, target):
        clean = model.examine(shown, CASES)
        objective = model.objective(aim, CASES, clean, shown)
        moved.append(attack(objective, shown, Budget(0.03), keys=NAMES).images)
    ignorant, knowing = (torch.tensor([one.loss for one in target.examine(images, CASES)]).mean() for images in moved)
    assert float(knowing) > (1.01 if transformation != "noise:0.05" else 0.98) * float(ignorant)


def test_without_randomness_the_attack_follows_the_loss_of_what_is_returned() -> None:
    target, shown = behind("blur:1"), leaning()
    clean = target.examine(shown, CASES)
    losses = target.objective("report", CASES, clean, shown).losses(shown, range(2))
    assert losses.tolist() == pytest.approx([one.loss for one in clean])
    answers = target.objective("answers", CASES, clean, shown).losses(shown, range(2))
    assert answers.tolist() == pytest.approx([one.loss for one in clean], rel=1e-4)  # one question, the same pattern


STUDIES = [truth(study, e=1) for study in ("s1", "s2", "s3", "s4")]
PGD = "pgd@2/255"
NAMED = {"a": "m", "b": "defended:blur:1:m"}


def losses(value: float) -> dict[str, Any]:
    return {study.id: image(e=0.9, loss=value) for study in STUDIES}


def conclusions(adaptive: float | None, ignorant: float = 2.0) -> dict[str, Any]:
    made = [
        lines("a", "clean", losses(1.0)),
        lines("a", PGD, losses(3.0)),
        lines("b", "clean", losses(1.1)),
        lines("b", PGD, losses(ignorant), crafted_on="a"),
    ]
    if adaptive is not None:
        made.append(lines("b", PGD, losses(adaptive)))
    return input_defence_results(audit(STUDIES, *made), NAMED)


def test_both_attacks_stand_side_by_side() -> None:
    row = conclusions(adaptive=2.5)["defended:blur:1:m"]
    assert (row["of"], row["transformation"]) == ("m", "blur:1")
    assert row["clean"]["report.loss"]["difference"]["value"] == pytest.approx(0.1)
    found = row["conditions"][PGD]["report.loss"]
    assert [found[kind]["value"] for kind in ("undefended", "non_adaptive", "adaptive")] == [3.0, 2.0, 2.5]
    assert found["difference"]["value"] == pytest.approx(0.5)
    assert not list(input_defence_warnings(conclusions(adaptive=2.5), "report"))


def test_an_adaptive_attack_that_is_missing_or_weaker_is_a_warning() -> None:
    (weaker,) = input_defence_warnings(conclusions(adaptive=1.9), "report")
    assert "1.900 against 2.000" in weaker and "--eot-draws" in weaker
    (missing,) = input_defence_warnings(conclusions(adaptive=None), "report")
    assert PGD in missing and "not known" in missing
    assert not list(input_defence_warnings(conclusions(adaptive=1.9), "target")), "another aim follows another loss"


def test_models_of_another_name_are_no_defence_of_the_first() -> None:
    made = audit(STUDIES, lines("a", "clean", losses(1.0)), lines("b", "clean", losses(1.0)))
    for name in ("other", "smoothed:0.1:m", "defended:blur:1:other"):
        assert input_defence_results(made, {"a": "m", "b": name}) == {}


def test_an_audit_with_an_input_defence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = planted.pattern_corpus(tmp_path / "corpus", 12)
    config = settings(
        corpus.path, input_defence=("blur:1.2",), attacks=("pgd", "noise"), eps=("0.03",), aims=("report",), trials=20,
        only_labels=(planted.NAME,), triptychs=0, control_studies=0, uint8=False, attack=AttackSettings(steps=4),
    )  # fmt: skip

    def opened(key: str, name: str, labels: Sequence[Label], config: RobustnessConfig, **_: Any) -> Any:
        given, model = parse_defended(name), PatternModel()
        if given is None:
            return AuditedReportModel(key, name, labels, model, config.decoding, "reference", config.goals)  # type: ignore[arg-type]
        return AuditedDefendedModel(key, name, labels, model, config, given[0])  # type: ignore[arg-type]

    monkeypatch.setattr(audits, "load_audited_model", opened)
    found = audits.audit(config, tmp_path / "run")
    assert list(found["models"]) == ["m", "defended:blur:1.2:m"]
    row = found["input_defences"]["defended:blur:1.2:m"]
    assert list(row["conditions"]) == ["pgd@0.03"]  # noise is the same for both
    assert row["conditions"]["pgd@0.03"]["report.loss"]["difference"]["low"] > 0
    assert row["clean"]["closed_questions.accuracy"]["undefended"] == 1


def test_names_and_settings() -> None:
    config = settings(input_defence=("jpeg:50", "noise"))
    assert config.models == ("m", "defended:jpeg:50:m", "defended:noise:0.05:m")
    parsed = parse_defended("defended:blur:1.5:http://h/v1#m")
    assert parsed is not None and (str(parsed[0]), parsed[1]) == ("blur:1.5", "http://h/v1#m")
    assert parse_defended("builtin:reporter") is None
    for wrong in (
        {"versus": ("defended:jpeg:50",)}, {"versus": ("defended:jpeg:builtin:reporter",)}, {"input_defence": ("jpg",)},
        {"versus": ("defended:jpeg:50:smoothed:0.1:m",)}, {"input_defence": ("jpeg", "jpeg:50")},
        {"input_defence": ("jpeg",), "transfer": False}, {"eot_draws": 0},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            settings(**wrong)
    for model in ("builtin:encoder", "stub:normal"):
        with pytest.raises(ConfigError):
            load_audited_model("b", f"defended:jpeg:50:{model}", [], settings())
