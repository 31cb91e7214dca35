"""Sentences: lists, decimals and abbreviations."""

from __future__ import annotations

from tables import every_row

from cxrlab.data.structuring.sentences import joined, split


@every_row(
    ("text", "sentences"),
    [
        ("1. No effusion. 2. A 1.8 cm nodule. 3. Edema", ["No effusion.", "A 1.8 cm nodule.", "Edema"]),
        ("- First thing\n- Second thing\ngoes on", ["First thing", "Second thing goes on"]),
        ("1) One\n2) Two", ["One", "Two"]),
        ("Dr. Who was told. No. 5 rib is broken.", ["Dr. Who was told.", "No. 5 rib is broken."]),
        ("Effusion? No. Clear.", ["Effusion?", "No.", "Clear."]),
        ("Heart normal; lungs clear.", ["Heart normal; lungs clear."]),
        ("___. XXXX. Clear.", ["XXXX.", "Clear."]),
        ("One paragraph\n\nanother", ["One paragraph", "another"]),
        ("", []),
        (" .\n", []),
    ],
)
def test_splitting(text: str, sentences: list[str]) -> None:
    assert split(text) == sentences


def test_joining_puts_capitals_and_marks() -> None:
    assert joined(["no effusion", "Clear?", "heart: normal,"]) == "No effusion. Clear? Heart: normal."


def test_nothing_joined_is_no_section() -> None:
    """An absent section is null, not an empty text."""
    assert joined([]) is None
