from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrlab.core.config import config_from, flatten, parse_group, to_dict, to_yaml
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.vocabulary import Side


@dataclass(frozen=True)
class Optimiser:
    """How weights move.

    Args:
        lr: Learning rate.
    """

    lr: float = 1e-3
    betas: tuple[float, ...] = (0.9, 0.999)


@dataclass(frozen=True)
class Training:
    """A stage.

    Args:
        steps: Updates.
    """

    steps: int = 10
    name: str = "base"
    mode: Literal["fast", "slow"] = "fast"
    side: Side | None = None
    out: Path | None = None
    shuffle: bool = True
    optimiser: Optimiser = field(default_factory=lambda: Optimiser(lr=0.5))

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"steps={self.steps} is not usable; give at least 1.")


@dataclass(frozen=True)
class Needy:
    data: Path
    inner: Training = field(default_factory=Training)


# Each line doubles the one before: 40 lines would stand for a million million values.
BILLION = "".join(f"a{k}: &a{k} [{'x' if k == 0 else f'*a{k - 1}, *a{k - 1}'}]\n" for k in range(40))


def yaml_at(folder: Path, text: str) -> Path:
    file = folder / "c.yaml"
    file.write_text(text)
    return file


def test_defaults_then_file_then_overrides(tmp_path: Path) -> None:
    file = yaml_at(tmp_path, "steps: 20\nname: file\noptimiser:\n  betas: [0.5]\n")
    config = config_from(Training, file, ["name=flag", "optimiser.betas=0.1,0.2", "side=left"])
    assert config == Training(20, "flag", side=Side.LEFT, optimiser=Optimiser(lr=0.5, betas=(0.1, 0.2)))


def test_setting_one_nested_value_keeps_the_other_defaults_of_the_parent() -> None:
    """The parent says lr=0.5; touching betas must not fall back to the parse_group class's 1e-3."""
    assert config_from(Training, overrides=["optimiser.betas=0.1"]).optimiser.lr == 0.5


@settings(deadline=None, max_examples=30)
@given(
    st.builds(
        Training,
        steps=st.integers(1, 10**9),
        name=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12),
        side=st.none() | st.sampled_from(Side),
        shuffle=st.booleans(),
        out=st.none() | st.sampled_from([Path("a/b"), Path("1e3"), Path("null")]),
        optimiser=st.builds(Optimiser, lr=st.floats(1e-9, 1e9)),
    )
)
def test_yaml_is_read_back_to_an_equal_config(tmp_path_factory: pytest.TempPathFactory, config: Training) -> None:
    file = yaml_at(tmp_path_factory.mktemp("c"), to_yaml(config))
    assert config_from(Training, file) == config


def test_a_number_without_a_dot_is_a_number(tmp_path: Path) -> None:
    """YAML 1.1 reads 1e-4 as text; people mean a number."""
    assert config_from(Training, yaml_at(tmp_path, "optimiser: {lr: 1e-4}")).optimiser.lr == 1e-4


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    file = yaml_at(tmp_path, "stepz: 1\nsteps: many\nname: 5\noptimiser:\n  lrr: 1\nlr: 2\nmode: quick\nshuffle: 1\n")
    with pytest.raises(ConfigError) as caught:
        config_from(Training, file, ["nonsense", "optimiser=3", "steps=null"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "10 problems with the settings:" and len(lines) == 11
    reported = "\n".join(lines)
    for part in (
        "c.yaml:1: there is no setting 'stepz'. Did you mean 'steps'?",
        "c.yaml:2: steps is 'many'; it must be a whole number.",
        "c.yaml:3: name is 5; it must be text. Put it in quotes.",
        "c.yaml:5: there is no setting 'optimiser.lrr'. Did you mean 'optimiser.lr'?",
        "c.yaml:6: there is no setting 'lr'. Did you mean 'optimiser.lr'?",
        "c.yaml:7: mode is 'quick'; it must be one of fast, slow.",
        "c.yaml:8: shuffle is 1; it must be true or false.",
        "'nonsense' is not an override; write it as key=value.",
        "'optimiser' is a group of settings, not a value; set optimiser.lr, optimiser.betas.",
        "steps is 'null'; it must be a whole number.",
    ):
        assert part in reported


def test_a_single_problem_is_a_single_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^steps is 'x'; it must be a whole number\.$"):
        config_from(Training, overrides=["steps=x"])


def test_a_required_setting_is_requested() -> None:
    with pytest.raises(ConfigError, match="'data' has no default"):
        config_from(Needy)
    assert config_from(Needy, overrides=["data=x"]).data == Path("x")


def test_a_bad_required_value_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^\S+:1: data is 3; it must be a path\.$"):
        config_from(Needy, yaml_at(tmp_path, "data: 3"))


def test_a_refusal_of_the_dataclass_passes_and_names_its_group() -> None:
    with pytest.raises(ConfigError, match=r"^steps=0 is not usable"):
        config_from(Training, overrides=["steps=0"])
    with pytest.raises(ConfigError, match=r"^in 'inner': steps=0"):
        config_from(Needy, overrides=["data=x", "inner.steps=0"])


@pytest.mark.parametrize("text", ["", "# only a comment\n", "optimiser:\n"])
def test_an_empty_file_or_group_means_defaults(tmp_path: Path, text: str) -> None:
    assert config_from(Training, yaml_at(tmp_path, text)) == Training()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: 1\nsteps: 2\n", r"c\.yaml:2 sets 'steps' again \(first on line 1\)"),
        ("optimiser:\n  lr: 1\n  lr: 2\n", r"c\.yaml:3 sets 'optimiser.lr' again"),
        ("steps: [1\n", r"c\.yaml:2 is not valid YAML"),
        ("- 1\n", "no 'key: value' lines"),
        ("just words\n", "no 'key: value' lines"),
        ("a: !!python/object/apply:os.system [echo]\n", "not valid YAML"),
        ("a: &a\n  x: *a\n", r"c\.yaml:2 .*'\*a' is an alias; write out the value"),
        ("a: &a {x: 1}\nb:\n  <<: *a\n", r"c\.yaml:3 .*'\*a' is an alias"),
        (BILLION, r"c\.yaml:2 .*'\*a0' is an alias"),
        ("steps: " + "9" * 5000, "not valid YAML"),
        ("steps: " + "[" * 10**4, "not valid YAML"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_from(Training, yaml_at(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        config_from(Training, tmp_path / "none.yaml")


def test_keys_that_are_not_text_are_unknown_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no setting '3'"):
        config_from(Training, yaml_at(tmp_path, "3: 4\n"))
    with pytest.raises(ConfigError, match="c.yaml:1 is not valid YAML"):
        config_from(Training, yaml_at(tmp_path, "? [1, 2]\n: 5\n"))


def test_dict_and_flat_form() -> None:
    values = to_dict(Training(side=Side.LEFT, out=Path("a")))
    assert (
        values["side"] == "left" and values["out"] == "a" and values["optimiser"] == {"lr": 0.5, "betas": [0.9, 0.999]}
    )
    assert flatten({"a": {"b": {"c": 1}}, "d": {}}) == {"a.b.c": 1, "d": {}}


def test_a_mapping_inside_a_file_is_read_by_the_same_rules() -> None:
    """Types, nesting and defaults as in a file of its own."""
    made, problems = parse_group(Optimiser, {"lr": 0.1}, "stages, 'a'")
    assert made == Optimiser(lr=0.1) and problems == []


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        ({"lrr": 1}, "Did you mean 'lr'"),
        ({"lr": "fast"}, "lr is 'fast'; it must be a number"),
        ([1], "it is [1]; it must be a group of settings (lr, betas)"),
    ],
)
def test_every_problem_of_a_mapping_inside_a_file_names_its_place(data: object, reported: str) -> None:
    made, (problem,) = parse_group(Optimiser, data, "stages, 'a'")
    assert made is None and problem.startswith("stages, 'a': ") and reported in problem


@dataclass(frozen=True)
class Grouped:
    """With a group whose keys nobody knows beforehand.

    Args:
        rows: Anything.
    """

    rows: Mapping[str, Any] = field(default_factory=dict)


def test_words_inside_a_free_group_stay_words(tmp_path: Path) -> None:
    """A quoted "off" is text; read once more as YAML it would be false."""
    file = tmp_path / "c.yaml"
    file.write_text('rows: {cache: "off", text: "null", number: "3", flag: off}\n')
    assert config_from(Grouped, file).rows == {"cache": "off", "text": "null", "number": "3", "flag": False}
