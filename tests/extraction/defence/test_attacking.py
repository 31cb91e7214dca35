"""What reaches the extraction audit from a table of defences."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpora import toy_corpus

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import write_text
from cxrlab.core.json_values import dumps
from cxrlab.extraction.config import DefendConfig, PaperDecoding
from cxrlab.extraction.defence.defend import FOLDER, Plan, attack_config, audit_attack, overrides, paired_loss
from cxrlab.extraction.records import Price
from cxrlab.models.load_settings import LoadSettings


def test_the_price_reaches_the_attack_so_that_its_ledger_counts_money() -> None:
    config = DefendConfig("stub:normal", Path("corpus"), price=Price(per_query=0.02, currency="EUR"))
    words = overrides(config, Plan(None, config.settings))
    assert {"price.per_query=0.02", "price.per_1k_tokens=0.0", "price.currency=EUR"} <= set(words)


def test_an_attack_file_that_cannot_be_used_is_refused_before_anything_is_queried(tmp_path: Path) -> None:
    file = tmp_path / "attack.yaml"
    file.write_text("fitting: {batch_size: 0}\n")
    with pytest.raises(ConfigError, match="batch_size"):
        audit_attack(DefendConfig("stub:normal", Path("corpus"), attack=file))
    file.write_text("fitting: {batch_size: 2}\n")
    audit_attack(DefendConfig("stub:normal", Path("corpus"), attack=file))


def test_the_attacked_victim_is_loaded_like_the_defended_one() -> None:
    usual = DefendConfig("stub:normal", Path("corpus"))
    assert not [word for word in overrides(usual, Plan(None, usual.settings)) if word.startswith("loading")]
    other = DefendConfig("stub:normal", Path("corpus"), loading=LoadSettings("cpu", "bfloat16", trust_remote_code=True))
    words = {word for word in overrides(other, Plan(None, other.settings)) if word.startswith("loading")}
    assert words == {"loading.device=cpu", "loading.dtype=bfloat16", "loading.trust_remote_code=true"}
    audit_attack(other)  # the audit can read them


def test_benign_users_and_the_attacker_get_their_words_in_one_way(tmp_path: Path) -> None:
    file = tmp_path / "attack.yaml"
    file.write_text("victim_decoding: {strategy: greedy, max_new_tokens: 60}\n")
    quiet = DefendConfig("stub:normal", Path("corpus"), attack=file)
    assert attack_config(quiet, Plan(None, quiet.settings)).victim_decoding.max_new_tokens == 60
    config = DefendConfig("stub:normal", Path("corpus"), attack=file, decoding=PaperDecoding("greedy", 40))
    assert attack_config(config, Plan(None, config.settings)).victim_decoding.max_new_tokens == 40


def test_a_loss_is_paired_where_both_copies_have_left_reports(tmp_path: Path) -> None:
    """Twenty images with a left effusion: the copy without a defence names all, the other half of them."""
    corpus = toy_corpus(tmp_path / "corpus", 20)
    ids = corpus.ids("test")
    right = {key: corpus[key].sections.findings for key in ids}  # type: ignore[union-attr]
    results = {}
    for name, kept in (("none", len(ids)), ("gate", 0)):
        run = tmp_path / name / "written"
        write_text(
            run / "predictions.jsonl",
            "".join(
                dumps({"id": key, "report": right[key] if place < kept else "The lungs are clear."}) + "\n"
                for place, key in enumerate(ids)
            ),
        )
        value = {"findings.f1": {"value": 0.5, "low": 0.4, "high": 0.6, "n": len(ids)}}
        results[name] = {"surrogate": value, FOLDER: tmp_path / name, "predictions": "written"}
    config = DefendConfig("stub:normal", corpus.path)
    found = paired_loss(config, results["gate"], results["none"], "findings.f1", tmp_path / "compared")
    assert found["paired"] is True and found["difference"] == pytest.approx(-1.0)
    del results["gate"][FOLDER]
    apart = paired_loss(config, results["gate"], results["none"], "findings.f1", tmp_path / "again")
    assert apart["paired"] is False and (apart["low"], apart["high"]) == (pytest.approx(-0.2), pytest.approx(0.2))
