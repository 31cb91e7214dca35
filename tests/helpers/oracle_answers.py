"""Answers that a language model could give to the oracle's built-in questions."""

from __future__ import annotations

from cxrlab.extraction.llm_oracle import load_questions
from cxrlab.extraction.report_content import Category

ABNORMAL = {
    Category.AIRWAY: "The trachea is deviated to the right.",
    Category.BREATHING: "There is a small left pleural effusion.",
    Category.CARDIAC: "There is moderate cardiomegaly.",
    Category.DIAPHRAGM: "The right hemidiaphragm is elevated.",
    Category.EVERYTHING: "There is an acute rib fracture on the left.",
}
NORMAL = {
    Category.AIRWAY: "The trachea is midline.",
    Category.BREATHING: "The lungs are clear.",
    Category.CARDIAC: "The heart is normal in size.",
    Category.DIAPHRAGM: "No free air is seen below the diaphragm.",
    Category.EVERYTHING: "No acute bone abnormality is seen.",
}
QUESTIONS = load_questions()
ASKED = {question.prompt: question for question in QUESTIONS.fill_in(2)}


def good(prompt: str) -> str:
    """Two lines on what was asked: the one that fits, and one that no part of an image is in."""
    question = ASKED[prompt]
    text = (ABNORMAL if question.kind == "abnormal" else NORMAL)[question.category]
    return f"1. {text}\n2. Nobody knows what this means."
