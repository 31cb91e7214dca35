"""The way through a gate is looked for at the attacker's own cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import extraction_attacks as helper
import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.image_codec import encode_png
from cxrlab.extraction.adaptive_attackers import probe_gate
from cxrlab.extraction.attack_rounds import Attack, run_attack
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.query_ledger import read_ledger, read_summary
from cxrlab.extraction.records import fingerprint

REFUSAL = "This picture was not recognised; please send it again."
BUDGET, PROBES = 24, 2


def gate(pixels: Any) -> str:
    """Noise reaches 255 and with half of it black 128: it passes from a share of 0.5 on, where 0.4 leaves 153."""
    return helper.heart(pixels) if pixels.max() < 140 else REFUSAL


@pytest.fixture
def config(tmp_path: Path) -> ExtractConfig:
    (tmp_path / "black.png").write_bytes(encode_png(np.zeros((8, 8), np.uint8)))
    return helper.settings(method="knockoff", budget=BUDGET, probes=PROBES, chest=tmp_path / "black.png")


def test_probes_come_out_of_the_budget_and_the_attack_goes_on_behind_them(
    config: ExtractConfig, tmp_path: Path
) -> None:
    attack, asked = helper.attack_on(tmp_path / "run", config, gate)
    going, found = probe_gate(attack)
    # Six shares are tried: 0 to 0.5.
    assert (found.blend_chest, found.queries, len(asked)) == (0.5, 6 * PROBES, 6 * PROBES)
    assert found.to_json()["passed"] == {"0": 0.0, "0.1": 0.0, "0.2": 0.0, "0.3": 0.0, "0.4": 0.0, "0.5": 1.0}
    queries = run_attack(going)
    assert len(asked) == BUDGET and len(queries) == BUDGET - 6 * PROBES  # the client lets no number be left out
    assert [one.key for one in asked[: PROBES + 1]] == ["noise000000", "noise000001", "noise000000"]
    assert [one.key for one in asked[-12:]] == [f"noise{number:06d}" for number in range(2, 14)]
    assert {one.report for one in queries} <= {helper.LARGE, helper.NORMAL}


def test_where_no_share_is_enough_the_best_is_taken(config: ExtractConfig, tmp_path: Path) -> None:
    first = fingerprint(helper.attack_on(tmp_path, config)[0].pool.draw(1)[0].pixels)

    def one_alone(pixels: Any) -> str:
        return helper.NORMAL if fingerprint(pixels) == first else REFUSAL

    _, found = probe_gate(helper.attack_on(tmp_path / "run", config, one_alone)[0])
    assert (found.blend_chest, found.queries, found.passed[0.0], found.passed[0.9]) == (0.0, 10 * PROBES, 0.5, 0.0)


def spend(attack: Attack) -> None:
    run_attack(probe_gate(attack)[0])


def test_probes_stand_in_the_ledger_and_a_stopped_audit_asks_none_twice(config: ExtractConfig, tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    seen: list[str] = []
    with helper.attack_with_ledger(straight, config, helper.FailingVictim(gate, [])) as attack:
        spend(attack)
    for most in (5, 10, 1 << 30):  # among the probes, then among the pictures of the attack
        with helper.attack_with_ledger(broken, config, helper.FailingVictim(gate, seen, most)) as attack:
            if most < BUDGET:
                with pytest.raises(ConnectionRefusedError):
                    spend(attack)
            else:
                spend(attack)
    queries = read_ledger(broken / "ledger.sqlite")
    assert helper.query_rows(queries) == helper.query_rows(read_ledger(straight / "ledger.sqlite"))
    assert [one.number for one in queries] == list(range(BUDGET)) and len(seen) == len(set(seen)) == BUDGET
    assert read_summary(broken / "ledger.sqlite").spent == BUDGET
    assert helper.plans(broken) == helper.plans(straight)


def test_settings_that_contradict_are_refused(config: ExtractConfig) -> None:
    with pytest.raises(ConfigError, match=r"probes=2 .* blend_chest=0\.3 "):
        replace(config, blend_chest=0.3)
    with pytest.raises(ConfigError, match="probes=3 may take 30 queries, too many of budget=24; give at most 2"):
        replace(config, probes=3)
    with pytest.raises(ConfigError, match="give at most 1"):  # three rounds need a query each
        replace(config, method="ada-steal", budget=22)
