"""What a file may say of a composition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.config import config_from
from cxrlab.core.errors import ConfigError
from cxrlab.data.config import ComposeConfig, Paper

CONFIGS = Path(__file__).parents[3] / "configs"


def test_a_member_is_read_with_its_types_and_defaults() -> None:
    member = ComposeConfig({"a": {"corpus": "x/y", "views": ["PA"], "n": 3, "paper": {"pairs": 7}}}).chosen()["a"]
    assert member.corpus == Path("x/y") and member.views == ("PA",) and member.n == 3
    assert member.splits == ("train", "none") and member.paper == Paper(pairs=7)


def test_every_problem_is_reported_at_once_and_by_member() -> None:
    with pytest.raises(ConfigError) as caught:
        ComposeConfig({"a": {"corpus": "x", "view": ["PA"]}, "b/c": {"splits": ["trian"]}, "d": 5})
    reported = str(caught.value)
    assert "members, 'a': there is no setting 'view'. Did you mean 'views'" in reported
    assert "'b/c'; use letters" in reported and "members, 'b/c': splits is ['trian']" in reported
    assert "members, 'b/c': 'corpus' has no default" in reported and "members, 'd': it is 5" in reported


@every_row(
    ("settings", "reported"),
    [
        ({"splits": []}, "must not be empty"),
        ({"texts": ["section"]}, "Did you mean 'sections'"),
        ({"texts": ["structured:"]}, "structured:NAME"),
        ({"texts": ["report:x"]}, "structured:NAME"),
        ({"section": "finding"}, "Did you mean 'findings'"),
        ({"n": 0}, "at least 1"),
        ({"stages": [4]}, "stages=[4]"),
        ({"stages": []}, "stages=[]"),
        ({"as_split": "test", "texts": ["structured"]}, "source's text alone"),
        ({"pair": "some"}, "one of all, first"),
        ({"paper": {"pear": 1}}, "paper.pear"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_the_remedy(settings: dict[str, Any], reported: str) -> None:
    with pytest.raises(ConfigError, match="members, 'a'") as caught:
        ComposeConfig({"a": {"corpus": "x", **settings}})
    assert reported in str(caught.value)


def test_a_stage_takes_its_own_members() -> None:
    members = {"a": {"corpus": "x", "stages": [1]}, "b": {"corpus": "y", "stages": [2, 3]}}
    assert list(ComposeConfig(members).chosen()) == ["a", "b"]
    assert list(ComposeConfig(members, stage=3).chosen()) == ["b"]
    with pytest.raises(ConfigError, match="stage=4"):
        ComposeConfig(members, stage=4)
    with pytest.raises(ConfigError, match="no member is used by stage 1"):
        ComposeConfig({"b": members["b"]}, stage=1)
    with pytest.raises(ConfigError, match="members is empty"):
        ComposeConfig({})


def test_the_seven_of_the_paper_add_up_to_its_total() -> None:
    """697,435 pairs in stage 1; 400,042 of MIMIC-CXR alone in stages 2 and 3 (supplementary tables 4 and 3)."""
    shipped = config_from(ComposeConfig, CONFIGS / "llava_rad/02_compose_cxr697k.yaml")
    first = shipped.chosen()
    assert len(first) == 7 and sum(member.paper.pairs or 0 for member in first.values()) == 697_435
    for stage in ("2", "3"):
        later = config_from(ComposeConfig, CONFIGS / "llava_rad/02_compose_cxr697k.yaml", [f"stage={stage}"]).chosen()
        assert [member.paper.pairs for member in later.values()] == [400_042]
        assert [member.corpus.name for member in later.values()] == ["mimic-cxr-structured"]


def test_the_shipped_members_are_data_sets_that_can_be_imported() -> None:
    from cxrlab.data.importing import IMPORTERS

    for file in ("llava_rad/02_compose_cxr697k", "data/external_openi", "data/external_chexpert"):
        shipped = config_from(ComposeConfig, CONFIGS / f"{file}.yaml", ["stage=null"])
        imported = {name: member for name, member in shipped.chosen().items() if member.made_by is None}
        assert {member.data_set or name for name, member in imported.items()} <= set(IMPORTERS)
