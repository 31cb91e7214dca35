from __future__ import annotations

from pathlib import Path

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.models.prompts import DEFAULT, Prompts, load_prompts, parse_indication, prompt_names

ROW = """
{name}:
  findings: "Reason: {{indication}}. Report?"
  findings_without_indication: "Report?"
  align: ""
  closed_question: "{{question}}"
"""


def test_the_default_asks_in_the_words_of_llava_rad() -> None:
    prompts = load_prompts()
    assert prompts == load_prompts(DEFAULT) and prompts.name == "llava-rad/1"
    assert prompts.ask("cough") == (
        "Provide a description of the findings in the radiology image given the following indication: cough"
    )
    assert prompts.ask() == prompts.ask("  \n") == "Provide a description of the findings in the radiology image."
    assert prompts.align == ""


def test_words_of_people_are_put_in_as_they_are() -> None:
    """No format language: braces in an indication stand for themselves; white space is collapsed."""
    prompts = load_prompts()
    assert prompts.ask("a {indication}\n {0} {x!r}").endswith("indication: a {indication} {0} {x!r}")
    assert prompts.question("Is there  {question}?") == "Is there {question}? Answer with yes or no."
    with pytest.raises(ConfigError, match="empty"):
        prompts.question(" ")


def test_a_file_of_ones_own_replaces_the_table(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(ROW.format(name="mine/1"))
    two.write_text(ROW.format(name="mine/1") + ROW.format(name="mine/2"))
    assert load_prompts(str(one)).ask("fall") == "Reason: fall. Report?"
    assert load_prompts(f"{two}#mine/2").name == "mine/2"
    with pytest.raises(ConfigError, match="choose one as"):
        load_prompts(str(two))
    with pytest.raises(UnknownName, match="mine/2"):
        load_prompts(f"{two}#mine/3")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("{question}", "What?"), "closed_question"),
        (('Report?"\n  align', '{indication}"\n  align'), "unknown placeholder"),
        (("{indication}", "{reason}"), "unknown placeholder"),
        (("align", "allign"), "unknown key 'allign'.* Did you mean 'align'"),
        (('align: ""', "align: 3"), "need a text 'align'"),
    ],
)
def test_a_file_that_would_ask_nonsense_is_refused(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(ROW.format(name="mine/1").replace(*change))
    with pytest.raises(ConfigError, match=says):
        load_prompts(str(file))


def test_an_empty_file_and_an_unknown_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("")
    with pytest.raises(ConfigError, match="holds no prompts"):
        load_prompts(str(tmp_path / "p.yaml"))
    with pytest.raises(UnknownName, match="Did you mean 'llava-rad/1'"):
        load_prompts("llava-rad/11")


def test_every_row_that_ships_can_be_asked() -> None:
    for name in ("llava-rad/1", "chexagent/1", "plain/1", "caption/1"):
        prompts = load_prompts(name)
        assert isinstance(prompts, Prompts) and prompts.question("Effusion?").count("Effusion?") == 1


@pytest.mark.parametrize("name", prompt_names())
@pytest.mark.parametrize("reason", ["cough", 'Fall; "rib pain", Findings: none {indication}', "a\n b", "indication: x"])
def test_a_request_tells_its_indication_again(name: str, reason: str) -> None:
    """Of every row that ships; one that never tells the indication has none to give back."""
    row = load_prompts(name)
    reported = " ".join(reason.split()) if "{indication}" in row.findings else None
    assert parse_indication(row.ask(reason)) == parse_indication(f"\n {row.ask(reason)}\t") == reported
    assert parse_indication(row.ask()) is None


@every_row(
    ("text", "indication"),
    [
        ("", None),
        (" \n", None),
        ("Cough and  fever.", "Cough and fever."),  # any other text is the indication itself
        ("Describe the picture. Please.", "Describe the picture. Please."),  # nearly a request is none
        ("describe the picture.", "describe the picture."),
        ("Indication: Findings:", None),  # nothing between the words of the request
        ("Indication: Findings: Findings:", "Findings:"),
        (load_prompts().ask("x")[:-1], None),  # up to the colon
    ],
)
def test_what_is_no_request_is_itself_the_indication(text: str, indication: str | None) -> None:
    assert parse_indication(text) == indication


def test_a_text_file_is_the_prompt_itself(tmp_path: Path) -> None:
    (tmp_path / "fixed.txt").write_text("Describe this image.\n")
    found = load_prompts(str(tmp_path / "fixed.txt"))
    assert found.ask() == found.ask("Cough.") == "Describe this image."
    assert found.closed_question == load_prompts().closed_question
    (tmp_path / "fixed.txt").write_text(" \n")
    with pytest.raises(ConfigError, match=r"fixed\.txt holds no prompt"):
        load_prompts(str(tmp_path / "fixed.txt"))
