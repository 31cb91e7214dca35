from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import planted_targets as planted
import pytest
from torch import Tensor

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.corpus import Corpus
from cxrlab.models.decoding import Decoding
from cxrlab.robustness import audit as audits
from cxrlab.robustness.audit_records import ImageAnswer
from cxrlab.robustness.audited_studies import Case
from cxrlab.robustness.config import RobustnessConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return planted.pattern_corpus(tmp_path_factory.mktemp("leaning") / "corpus")


def settings(corpus: Corpus, **changes: Any) -> RobustnessConfig:
    plain: dict[str, Any] = {
        "model": "planted:a",
        "data": corpus.path,
        "attacks": ("pgd", "noise"),
        "eps": ("4/255", "16/255"),
        "only_labels": (planted.NAME,),
        "batch_size": 16,
        "trials": 50,
        "triptychs": 2,
        "control_studies": 40,
        "attack": AttackSettings(steps=5, queries=60),
    }
    return RobustnessConfig(**{**plain, **changes})


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the audit open these classes, in order, in place of named models."""

    def put(*kinds: type[planted.PatternTarget]) -> None:
        order = dict(zip("abc", kinds, strict=False))
        monkeypatch.setattr(
            audits,
            "load_audited_model",
            lambda key, name, labels, config, **_: order[key](key, f"planted:{key}", labels),
        )

    return put


def test_a_planted_vulnerable_model_is_broken_and_noise_of_the_same_size_is_not(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    use(planted.PatternTarget)
    found = audits.audit(settings(corpus), tmp_path / "run")
    model = found["models"]["planted:a"]
    assert model["clean"]["closed_questions.accuracy"]["value"] == 1
    # The lean is 10/255: a radius of 4 cannot turn it round, one of 16 does so on every image.
    assert model["attacks"]["pgd@4/255"]["flip_rate"]["value"] == 0
    assert model["attacks"]["pgd@16/255"]["flip_rate"]["value"] == 1
    assert model["attacks"]["pgd@16/255"]["findings.f1"]["value"] == 0
    assert model["attacks"]["pgd:answers@16/255"]["closed_questions.accuracy"]["value"] == 0
    assert model["attacks"]["noise@16/255"]["flip_rate"]["value"] == 0
    assert model["attacks"]["pgd@16/255"]["realised"]["linf"]["max"] <= 16 / 255
    assert found["controls"]["image_dependence"]["a"]["verdict"] == "uses_image"
    assert not found["warnings"]


def test_a_planted_blind_model_is_flagged_by_the_control(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    use(planted.BlindTarget)
    found = audits.audit(settings(corpus), tmp_path / "run")
    assert found["models"]["planted:a"]["attacks"]["pgd@16/255"]["flip_rate"]["value"] == 0  # looks robust
    assert found["controls"]["image_dependence"]["a"]["verdict"] == "ignores_image"
    assert "does not use the image" in found["warnings"][0]


def test_a_planted_gradient_masked_model_is_flagged_by_the_self_checks(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    use(planted.MaskedTarget)
    config = settings(corpus, attacks=("fgsm", "square"), eps=("16/255",), aims=("report",))
    found = audits.audit(config, tmp_path / "run")
    model = found["models"]["planted:a"]
    assert model["attacks"]["fgsm@16/255"]["flip_rate"]["value"] == 0  # looks robust
    warning = " ".join(found["warnings"])
    assert "100% of the gradients under fgsm@16/255 are 0 in every pixel" in warning
    assert "square@16/255 reaches a higher loss" in warning


def test_a_random_model_is_flagged(corpus: Corpus, use: Callable[..., None], tmp_path: Path) -> None:
    use(planted.RandomTarget)
    found = audits.audit(settings(corpus, n=6, attacks=("noise",), control_studies=0), tmp_path / "run")
    assert any("the same image gets different answers" in line for line in found["warnings"])


def test_a_model_of_words_alone_gets_black_box_attacks_and_a_sentence(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    use(planted.TextOnlyTarget)
    config = settings(corpus, n=8, attacks=("pgd", "square", "random-report", "noise"), control_studies=0)
    found = audits.audit(config, tmp_path / "run")
    tried = {name.partition("@")[0] for name in found["models"]["planted:a"]["attacks"]}
    assert tried == {"random-report", "noise"}
    warning = " ".join(found["warnings"])
    assert "provides no gradients, so that pgd is left out" in warning
    assert "returns only text, so that square is left out" in warning


def test_nothing_to_try_is_refused_before_a_folder_is_made(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    use(planted.TextOnlyTarget)
    with pytest.raises(ConfigError, match="random-report or noise"):
        audits.audit(settings(corpus, attacks=("pgd",)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("calls", [1, 4, 9])
def test_a_stopped_audit_ends_with_the_same_bytes(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    config = settings(corpus, n=20, batch_size=8, corruptions=("gamma",), versus=("planted:b",))
    use(planted.PatternTarget, planted.MaskedTarget)
    whole = audits.audit(config, tmp_path / "whole")
    examine = planted.PatternTarget.examine
    left = calls

    def stopping(self: Any, images: Any, cases: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return examine(self, images, cases)

    monkeypatch.setattr(planted.PatternTarget, "examine", stopping)
    with pytest.raises(KeyboardInterrupt):
        audits.audit(config, tmp_path / "stopped")
    monkeypatch.setattr(planted.PatternTarget, "examine", examine)
    assert audits.audit(config, tmp_path / "stopped") == whole
    for name in ("truth.jsonl", "answers.jsonl", "controls.jsonl", "robustness.json", "triptychs.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    again = audits.audit(config, tmp_path / "whole")  # a finished one is read, not made again
    assert again["models"].keys() == whole["models"].keys()


def test_batches_do_not_change_what_is_found(corpus: Corpus, use: Callable[..., None], tmp_path: Path) -> None:
    use(planted.PatternTarget)
    lines = []
    for size in (1, 16):
        folder = tmp_path / str(size)
        audits.audit(settings(corpus, n=16, batch_size=size, control_studies=0), folder)
        lines.append({record["id"]: record for _, record in read_jsonl(folder / "answers.jsonl")})
    assert lines[0].keys() == lines[1].keys()
    for key, one in lines[0].items():
        assert one["image"]["report"] == lines[1][key]["image"]["report"]
        assert one["image"]["loss"] == pytest.approx(lines[1][key]["image"]["loss"], rel=1e-4, abs=1e-6)


def test_images_made_for_one_model_are_shown_to_the_other(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    use(planted.PatternTarget, planted.MaskedTarget)
    found = audits.audit(settings(corpus, versus=("planted:b",), attacks=("pgd",), eps=("16/255",)), tmp_path / "run")
    pair = found["comparison"]["a:b"]
    # The masked model hides its own gradients, and falls to those of its neighbour.
    assert pair["conditions"]["pgd@16/255"]["flip_rate"]["b"] == 0
    assert pair["transfer"]["pgd@16/255"]["a_to_b"]["flip_rate"]["value"] == 1


def test_a_region_keeps_pixels_outside_of_it_as_they_were(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    use(planted.PatternTarget)
    config = settings(corpus, n=8, region="patch:0,0,0.5,1", attacks=("pgd",), eps=("16/255",), aims=("report",))
    found = audits.audit(config, tmp_path / "run")
    # Half of the pixels can turn half of the lean: 16/2 < 10.
    assert found["models"]["planted:a"]["attacks"]["pgd@16/255"]["flip_rate"]["value"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eps": ("8",)}, "Did you mean 8"),
        ({"eps": ("2/255", "2/255")}, "names a radius twice"),
        ({"only_labels": ("edema", "edema")}, "names something twice"),
        ({"decoding": Decoding(strategy="sample", answers=1)}, "strategy=sample"),
        ({"attacks": ("pdg",)}, "Did you mean 'pgd'"),
        ({"aims": ()}, "aims is empty"),
        ({"versus": ("planted:a",)}, "named twice"),
        ({"region": "lungs"}, "region"),
        ({"severities": (6,)}, "severities .*'6'"),
        ({"attacks": (), "corruptions": ()}, "neither an attack nor a corruption"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(corpus: Corpus, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(corpus, **changes)


def test_the_worst_case_is_never_better_than_the_clean_image(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    """Noise can mend by chance; an attacker who finds nothing worse leaves the image as it is."""
    use(planted.RandomTarget)
    found = audits.audit(
        settings(corpus, n=20, attacks=("noise",), eps=("1/255",), control_studies=0), tmp_path / "run"
    )
    model = found["models"]["planted:a"]
    assert model["worst"]["1/255"]["errors.significant"]["value"] >= model["clean"]["errors.significant"]["value"]


def test_every_radius_begins_anew(corpus: Corpus, use: Callable[..., None], tmp_path: Path) -> None:
    """`passes` is then all that an image has cost: the same alone and behind a smaller radius."""
    use(planted.PatternTarget)
    lines = []
    for name, eps in (("alone", ("16/255",)), ("behind", ("4/255", "16/255"))):
        config = settings(corpus, n=6, eps=eps, attacks=("pgd",), aims=("report",), control_studies=0)
        audits.audit(config, tmp_path / name)
        warning = [record for _, record in read_jsonl(tmp_path / name / "answers.jsonl")]
        lines.append([record["attack"] for record in warning if record["condition"] == "pgd@16/255"])
    assert lines[0] == lines[1]
    assert {trace["passes"] for trace in lines[0]} == {5}


def test_attacks_by_words_do_not_make_gradients_look_masked(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    """They count findings, and gradients raise nats: no comparison."""
    use(planted.PatternTarget)
    config = settings(corpus, n=8, attacks=("fgsm", "random-report"), eps=("4/255",), aims=("report",))
    found = audits.audit(config, tmp_path / "run")
    assert not any("masked" in line for line in found["warnings"])


def test_a_condition_means_the_same_aim_for_every_model(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path
) -> None:
    class AnswersAlone(planted.PatternTarget):
        aims = ("answers",)

    use(planted.PatternTarget, AnswersAlone)
    config = settings(corpus, n=6, versus=("planted:b",), attacks=("pgd",), eps=("4/255",), control_studies=0)
    found = audits.audit(config, tmp_path / "run")
    assert list(found["models"]["planted:b"]["attacks"]) == ["pgd:answers@4/255"]
    assert "pgd@4/255" not in found["comparison"]["a:b"]["conditions"]


def test_a_image_that_cannot_be_read_is_reported_before_the_first_attack(
    use: Callable[..., None], tmp_path: Path
) -> None:
    spoilt = planted.pattern_corpus(tmp_path / "corpus", 6)
    (spoilt.path / "images" / "s004.png").write_bytes(b"junk")
    use(planted.PatternTarget)
    with pytest.raises(DataError, match="1 of 6 studies cannot be attacked"):
        audits.audit(settings(spoilt), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rounded", [True, False])
def test_with_rounded_a_model_sees_eight_bits_and_nothing_else(
    corpus: Corpus, use: Callable[..., None], tmp_path: Path, rounded: bool
) -> None:
    shown: list[Tensor] = []

    class Recording(planted.PatternTarget):
        def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
            shown.append(images)
            return super().examine(images, cases)

    use(Recording)
    config = settings(corpus, n=8, eps=("2.5/255",), rounded=rounded, control_studies=0, triptychs=0)
    audits.audit(config, tmp_path / "run")
    off = max(float((images * 255 - (images * 255).round()).abs().max()) for images in shown)
    assert (off < 1e-3) is rounded
