"""Lexicon B: other words for the same things, held back for oracles and tests."""

from __future__ import annotations

from cxrlab.findings.lexicon import Lexicon
from cxrlab.findings.lexicon_b import sections, sentences
from cxrlab.findings.lexicon_b.chest import CHEST
from cxrlab.findings.lexicon_b.devices import DEVICES, TIP_FRAMES, TIPS
from cxrlab.findings.lexicon_b.lungs import LUNGS

LEXICON = Lexicon(
    name="B",
    observations={**LUNGS, **CHEST, **DEVICES},
    scales=sentences.SCALES,
    on_side=sentences.ON_SIDE,
    zones=sentences.ZONES,
    places=sentences.PLACES,
    unsided_places=sentences.UNSIDED_PLACES,
    ribs=sentences.RIBS,
    tips=TIPS,
    tip_frames=TIP_FRAMES,
    full=sentences.FULL,
    terse=sentences.TERSE,
    hedged=sentences.HEDGED,
    hedged_verbs=sentences.HEDGED_VERBS,
    changes=sentences.CHANGES,
    leads=sentences.LEADS,
    resolved=sentences.RESOLVED,
    denials=sentences.DENIALS,
    impression=sentences.IMPRESSION,
    openers=sentences.OPENERS,
    normal=sections.NORMAL,
    headings=sections.HEADINGS,
    examinations=sections.EXAMINATIONS,
    indications=sections.INDICATIONS,
    comparisons=sections.COMPARISONS,
    no_comparison=sections.NO_COMPARISON,
    impression_normal=sections.IMPRESSION_NORMAL,
    impression_calm=sections.IMPRESSION_CALM,
)
