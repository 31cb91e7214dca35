"""What reaches the extraction audit from a table of defences."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.extraction.defence.attacking import Plan, audit_attack, overrides
from cxrlab.extraction.defence.config import DefendConfig
from cxrlab.extraction.terms import Price
from cxrlab.models.loading import Loading


def test_the_price_reaches_the_attack_so_that_its_ledger_counts_money() -> None:
    config = DefendConfig("stub:normal", Path("corpus"), price=Price(per_query=0.02, currency="EUR"))
    words = overrides(config, Plan(None, config.settings))
    assert {"price.per_query=0.02", "price.per_1k_tokens=0.0", "price.currency=EUR"} <= set(words)


def test_an_attack_file_that_cannot_be_used_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "attack.yaml"
    file.write_text("fitting: {batch_size: 0}\n")
    with pytest.raises(ConfigError, match="batch_size"):
        audit_attack(DefendConfig("stub:normal", Path("corpus"), attack=file))
    file.write_text("fitting: {batch_size: 2}\n")
    audit_attack(DefendConfig("stub:normal", Path("corpus"), attack=file))


def test_the_attacked_victim_is_loaded_like_the_defended_one() -> None:
    usual = DefendConfig("stub:normal", Path("corpus"))
    assert not [word for word in overrides(usual, Plan(None, usual.settings)) if word.startswith("loading")]
    other = DefendConfig("stub:normal", Path("corpus"), loading=Loading("cpu", "bfloat16", trust_remote_code=True))
    words = {word for word in overrides(other, Plan(None, other.settings)) if word.startswith("loading")}
    assert words == {"loading.device=cpu", "loading.dtype=bfloat16", "loading.trust_remote_code=true"}
    audit_attack(other)  # the audit can read them
