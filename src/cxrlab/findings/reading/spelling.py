"""Words that are read as one word, and words that are passed over, before any phrase is looked for."""

from __future__ import annotations

# Read as the first: small verbs, ways of saying "seen", and other words that differ in nothing the reader asks for.
SAME = {
    "is": "are was were be been being am appears appear seems seem looks look",
    "has": "have had having",
    "seen": "noted identified present visualized visible evident appreciated demonstrated observed detected found"
    " recognized apparent shown discerned depicted recognizable appreciable perceived discernible"
    " detectable identifiable view viewed noticed exists exist occurs reported",
    "evidence": "sign feature",
    "shows": "show showing demonstrates demonstrate demonstrating reveals reveal revealing displays display exhibits",
    "may": "might could",
    "resolved": "vanished disappeared cleared gone",
    "represents": "represent representing reflects reflect reflecting indicates indicate indicating denotes denoting"
    " signifies signifying",
    "prior": "previous earlier former preceding past last",
    "focus": "area",
    "film": "image radiograph study examination exam xray projection picture exposure",
    "exclude": "excluding excludes",
    "assess": "assessed assessing evaluate evaluated evaluating judge judged visualize characterize characterized",
    "assessment": "evaluation visualization interpretation",
    "cannot": "couldn",
    "enlarged": "enlargement widened widening dilated dilatation dilation broad broadened broadening wide big"
    " distended distention distension dilatated",
    "tortuous": "tortuosity ectatic ectasia unfolded unfolding winding uncoiled uncoiling elongated elongation",
    "elevated": "elevation raised",
    "deviated": "deviation displaced displacement shifted shift deviates shifts pushed pulled drawn",
    "blunted": "blunting obliterated obliteration effaced effacement obliterates",
    "flattened": "flattening flat",
    "calcified": "calcification calcific chalky",
    "hyperinflated": "hyperinflation hyperexpanded hyperexpansion hyperaerated hyperaeration overinflated overinflation"
    " hyperdistention hyperdistension hyperdistended hyperdistented overexpanded overexpansion hyperlucent"
    " hyperlucency overaerated overdistended overdistension",
    "hypoinflated": "hypoinflation underinflated underinflation hypoventilation hypoventilatory hypoventilated"
    " hypoaerated hypoaeration underexpanded underexpansion hypoexpanded hypoexpansion underaerated"
    " underaeration underventilation",
    "effusion": "hydrothorax hemothorax empyema pyothorax chylothorax",
    "diaphragm": "hemidiaphragm hemidiaphragmatic diaphragmatic",
    "consolidation": "consolidative consolidated consolidating",
    "opacity": "opacification opaque opacified opacities",
    "basilar": "basal",
    "lymphadenopathy": "adenopathy",
    "air": "gas",
    "unchanged": "stable constant static unaltered steady",
    "tumor": "neoplasm malignancy carcinoma cancer",
    "clavicle": "clavicular collarbone",
    "vein": "venous",
    "limit": "limits",
    "junction": "jxn jct",
    "atelectasis": "atx",
    "mask": "masks",
    "scoliosis": "scoliotic",
}  # fmt: skip

# Adverbs and articles that change nothing the reader asks for. "Not well seen" keeps its adverb.
PASSED = frozenset(
    "the any definitely essentially overtly obviously convincingly really currently readily also quite"
    " now today fairly relatively overall generally basically presently simply visually radiographically"
    " significantly substantially then thus therefore specifically otherwise especially"
    " particularly predominantly predominately mainly approximately about roughly around some several multiple"
    " few scattered numerous many solitary lone additional further that itself"
    " active definite convincing discrete dedicated significant appreciable obvious"
    " overt frank relevant please just own interval".split()
)
