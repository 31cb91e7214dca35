"""Result files of extractions, detections and defences, written by hand with small numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.image_codec import encode_png
from cxrlab.core.runs import Run

FINDINGS, ROUGE, CRIMSON = "findings.f1", "rougeL:coco", "crimson:rules"
BEFORE, AFTER = "a" * 64, "b" * 64


def measure(value: float | None, low: float | None = None, high: float | None = None, **more: Any) -> dict[str, Any]:
    """A value with its interval, of 40 studies."""
    return {"direction": "higher", "value": value, "low": low, "high": high, "n": 40, "undefined": 0, **more}


def variety(n: int, sets: int, abnormal: float, vocabulary: int) -> dict[str, Any]:
    """Variety of the reports of one round, or of all rounds."""
    return {
        **{"n": n, "silent": 0, "distinct_reports": n, "distinct_finding_sets": sets, "vocabulary": vocabulary},
        **{"abnormal_share": abnormal, "abnormal_share_low": abnormal - 0.1, "abnormal_share_high": abnormal + 0.1},
        **{"words": 31.25, "words_low": 30.0, "words_high": 32.5, "commonest_report": 0.2, "findings": {"edema": sets}},
    }


def extraction(method: str = "ada-steal", copy: float = 0.45, spent: int = 1500, **changed: Any) -> dict[str, Any]:
    """Content of extraction.json: the victim has 0.9 of findings F1, the copy `copy` with ends 0.05 away."""
    own = measure(copy, copy - 0.05, copy + 0.05)
    label = {**measure(0.5, 0.4, 0.6), "support": 12, "claimed": 9}
    silent = {**measure(0.0, 0.0, 0.0), "support": 0, "claimed": 3}
    return {
        "threat": f"Threat model: the attacker of 'builtin:reporter' may spend {spent} queries.",
        "authorised": None,
        "method": method,
        **{"budget": max(spent, 1), "spent": spent, "answered": spent, "refused": 0, "cached": 0, "lost": 0},
        "cost": {"amount": 0.0, "currency": "USD", "unknown": 0},
        **{"n": 40, "patients": 38, "untouched": "nothing was asked" if method == "none" else None},
        "victim": {FINDINGS: measure(0.9, 0.86, 0.94), ROUGE: measure(0.6, 0.55, 0.65), CRIMSON: measure(0.8)},
        "surrogate": {FINDINGS: own, ROUGE: measure(0.3, 0.25, 0.35), CRIMSON: measure(-0.2, -0.3, -0.1)},
        "fidelity": {FINDINGS: measure(0.47, 0.41, 0.53), ROUGE: measure(0.33, 0.3, 0.36)},
        "ratio": {
            FINDINGS: measure(copy / 0.9, copy / 0.9 - 0.06, copy / 0.9 + 0.06, natural_zero=True),
            ROUGE: measure(0.5, None, None, natural_zero=True),
            CRIMSON: measure(-0.25, -0.4, -0.1, natural_zero=False),
        },
        "observations": {
            "chexpert": dict.fromkeys(("victim", "surrogate", "fidelity"), {"Edema": label, "Fracture": silent})
        },
        "left_out": {"bertscore": "not counted: it needs encoder of the user"},
        "curve": {"500": {FINDINGS: measure(copy / 2, 0.1, 0.3)}, str(spent): {FINDINGS: own}}
        if spent
        else {"0": {FINDINGS: own}},
        "transcript": {
            **variety(spent, 90, 0.7, 310),
            "rounds": {"0": variety(500, 20, 0.3, 120), "1": variety(500, 60, 0.8, 290)} if spent else {},
        },
        "options": {
            "surrogate": "parts:builtin:encoder+builtin:general",
            "pool": "scenes",
            "eps": "0.2",
            "oracle": "rules",
        },
        **changed,
    }


def pair(**changed: Any) -> dict[str, Any]:
    """An image before and after its perturbation."""
    return {
        **{"key": "scene7", "round": 1, "wanted": "One sees a wide heart."},
        "before": {"sha256": BEFORE, "report": "Lungs are clear."},
        "after": {"sha256": AFTER, "report": "Marked cardiomegaly."},
        "spans": {"before": [], "after": [[0, 19, "new"]]},
        **changed,
    }


def map_json() -> dict[str, Any]:
    """Content of map.json: a sentence of a clean and one of a perturbed image."""
    rows = [
        {"x": 0.0, "y": 1.0, "round": 0, "source": "clean", "text": "No <b>edema</b>.", "abnormal": False, "count": 4},
        {"x": 2.0, "y": 0.0, "round": 1, "source": "perturbed", "text": "Large mass.", "abnormal": True, "count": 1},
    ]
    details = {
        "sentences": 2,
        "left_out": 5,
        "embedding": "tf-idf of words",
        "perplexity": 0.7,
        "trustworthiness": 0.91,
    }
    return {"rows": rows, **details}


def extraction_run(folder: Path, found: dict[str, Any], pairs: tuple[dict[str, Any], ...] = (), **config: Any) -> Path:
    """A finished run folder of an extraction; without pairs it has neither map nor examples."""
    settings = {"victim": "builtin:reporter", "data": "corpora/x", "split": "test", "n": None, "seed": 7}
    with Run.open(folder, {**settings, "budget": found["budget"], **config}, seed=7) as run:
        run.write("extraction.json", found)
        if pairs:
            run.path("examples.json").write_text(json.dumps(pairs))
            run.write("map.json", map_json())
            for name, grey in ((BEFORE, 40), (AFTER, 200)):
                run.write(f"pictures/{name}.png", encode_png(np.full((4, 4), grey, np.uint8)))
    return folder


def share(value: float | None, low: float | None, high: float | None, n: int) -> dict[str, Any]:
    """A share with its interval."""
    return {"value": value, "low": low, "high": high, "n": n}


def detected(at: int | None, flagged: dict[str, Any] | None = None) -> dict[str, Any]:
    """Result of one detector on a stream of queries."""
    quality: dict[str, Any] = {"budget": None, "value": None, "reason": "there was no alarm"}
    if at is not None:
        quality = {"budget": 50, **measure(0.21, 0.15, 0.27), "reason": None}
    return {
        **{"detected": at is not None, "queries_to_detect": at, "median_queries": at},
        "detection_rate": share(0.0 if at is None else 1.0, 0.6 if at else 0.0, 1.0 if at else 0.4, 9),
        "share_flagged": flagged,
        "quality": quality,
    }


def detection(**changed: Any) -> dict[str, Any]:
    """Content of detection.json: a gate within its bound per image, mmd with too few accounts, prada above its bound."""
    gate = {
        **{"per_image": True, "bound": {"account": 0.01, "image": 0.002}, "queries": 100},
        "false_positives": {"account": share(0.0, 0.0, 0.009, 400), "image": share(0.0004, 0.0001, 0.0012, 5000)},
    }
    mmd = {"bound": {"account": 0.01}, "queries": 100, "false_positives": {"account": share(0.0, 0.0, 0.07, 50)}}
    prada = {"bound": {"account": 0.01}, "queries": 100, "false_positives": {"account": share(0.2, 0.1, 0.34, 50)}}
    queries = {"chest-gate": detected(3, share(0.98, 0.96, 0.99, 900)), "mmd": detected(64), "prada": detected(None)}
    return {
        "benign": {"data": "corpora/x", "held_out": "test", "held_out_images": 5000},
        **{"encoder": "builtin:encoder", "metric": FINDINGS},
        "detectors": {"chest-gate": gate, "mmd": mmd, "prada": prada},
        "streams": {"knockoff": {"path": "runs/knockoff", "queries": 900, "accounts": 1, "detectors": queries}},
        "warnings": ["prada flags more benign accounts than its bound allows."],
        **changed,
    }


def attack(with_: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    """One attack on a defended victim; without the defence the copy has 0.45."""
    loss = {"metric": FINDINGS, "with": with_, "without": 0.45, "difference": with_ - 0.45, "low": low, "high": high}
    result = {"spent": 1500, "refused": more.pop("refused", 0)}
    return {"blend_chest": 0.0, "chest": None, "rewrite": False, "accounts": 1, "loss": loss, "result": result, **more}


def defended(benign: float = 0.0, harms: tuple[str, ...] = (), **attacks: dict[str, Any]) -> dict[str, Any]:
    """A row of defence.json."""
    gap = {"a": 0.9, "b": 0.9 + benign, "difference": benign, "low": benign - 0.01, "high": benign + 0.01, "p": 0.5}
    return {
        "safety": {"defence": "x", "n": 299, "reworded": 0, "most_unsafe": 0.01},
        "benign": {
            **{"n": 200, "refused": share(0.005, 0.0, 0.03, 200), "reworded": share(0.0, 0.0, 0.02, 200)},
            "difference": {FINDINGS: gap},
        },
        "harms": list(harms),
        "attacks": attacks,
    }


def defence(**changed: Any) -> dict[str, Any]:
    """Content of defence.json: an adaptive attack passes the gate, coarse reports hold, the quota refuses benign use."""
    probing = {"blend_chest": 0.6, "queries": 280, "passed": {"0": 0.0, "0.6": 0.925}}
    blended = attack(0.44, -0.1, 0.08, blend_chest=0.6, probing=probing)
    gate = defended(plain=attack(0.02, -0.5, -0.3, refused=1490), adaptive=blended)
    coarse = defended(plain=attack(0.2, -0.35, -0.15), adaptive=attack(0.22, -0.33, -0.13, rewrite=True))
    quota = defended(harms=("refuses 12.0% of benign requests at the stated use",), plain=attack(0.3, -0.25, -0.05))
    quota["benign"]["quota"] = {"answers": 100, "by_images_per_window": {"60": 0.12}, "share_refused": 0.12}
    mark = {"z": 5.7446, "p": 2.4e-7, "n_choices": 11, "green": 11, "gamma": 0.25, "rate": 1.0}
    nothing = {"z": None, "p": 1.0, "n_choices": 0, "green": 0, "gamma": 0.25, "rate": None}
    watermark = defended(plain=attack(0.45, -0.1, 0.1))
    watermark["evidence"] = {
        "marked": {**mark, "contexts_needed": 4, "queries_needed": 2},
        "copies": {"plain": {**nothing, "contexts_needed": None, "queries_needed": None}},
    }
    summary = {
        **{"severity": "medium", "rule": "medium from 0.5 of the victim's findings F1"},
        "copied": {"metric": FINDINGS, "ratio": 0.5, "low": 0.44, "high": 0.56},
        "techniques": [{"id": "AML.T0024.002", "name": "Extract AI Model", "part": "what the attack achieves"}],
        "cost_to_copy": {"queries": 1500, "money": 30.0, "currency": "EUR", "least_queries": 900},
        "recommended": {
            **{"control": "coarse", "reason": "'coarse' takes most from the copy."},
            "mitigation": {"id": "AML.M0002", "name": "Passive AI Output Obfuscation"},
        },
    }
    threat = "Threat model: the attacker may spend 1500 queries."
    return {
        **{"victim": "builtin:reporter", "authorised": "Dr Owner, own model", "n": 200},
        "undefended": {"threat": threat, "spent": 1500, "surrogate": {FINDINGS: measure(0.45, 0.4, 0.5)}},
        "defences": {"gate": gate, "coarse": coarse, "quota": quota, "watermark": watermark},
        "price": {"per_query": 0.02, "per_1k_tokens": 0.0, "currency": "EUR"},
        "summary": summary,
        **changed,
    }


def seeded(*values: float | None) -> dict[str, Any]:
    """A value over seeds, with an interval of ±0.1."""
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else None
    ends = (None, None) if mean is None else (mean - 0.1, mean + 0.1)
    by_seed = [{"seed": place + 1, "value": value, "low": None, "high": None} for place, value in enumerate(values)]
    details = {"values": list(values), "mean": mean, "low": ends[0], "high": ends[1], "seeds": len(known)}
    return {**details, "by_seed": by_seed}


def variant(method: str, *values: float, changes: str = "") -> dict[str, Any]:
    """A variant of extraction_seeds.json: findings F1 of its copies by seed; the victim has 0.9."""
    sides = {"surrogate": seeded(*values), "victim": seeded(*[0.9] * len(values)), "fidelity": seeded(*values)}
    return {
        **{"changes": changes, "published": {}, "asked": {"method": method, "budget": 1500}, "folders": []},
        "metrics": {FINDINGS: {**sides, "ratio": seeded(*[value / 0.9 for value in values])}, ROUGE: sides},
        "curve": {"500": {FINDINGS: seeded(*[value / 2 for value in values])}, "1500": {FINDINGS: seeded(*values)}},
        "transcript": {"distinct_finding_sets": seeded(80.0, 100.0), "abnormal_share": seeded(0.6, 0.8), "rounds": {}},
        **{"spent": seeded(1500.0), "refused": seeded(0.0), "cost": seeded(0.0), "currency": "USD", "untouched": []},
    }


def extraction_seeds(**changed: Any) -> dict[str, Any]:
    """Content of extraction_seeds.json: ADA-Steal above Knockoff above nothing, with a table of the paper."""
    by_seed = [
        {"seed": 1, "against": 0.2, "value": 0.4, "difference": 0.2, "low": 0.1, "high": 0.3, "p": 0.01},
        {"seed": 2, "against": 0.2, "value": 0.5, "difference": 0.3, "low": 0.2, "high": 0.4, "p": 0.01},
    ]
    gained = {
        **{"by_seed": by_seed, "difference": seeded(0.2, 0.3)},
        "pooled": {"value": 0.25, "low": 0.12, "high": 0.38, "excludes_zero": True},
        "ratio": {"value": 2.25, "low": 1.5, "high": 3.1},
    }
    published = {"victim": {"RG-L": 26.5}, "knockoff": {"RG-L": 23.2}, "ada": {"RG-L": 24.7}}
    shares = {"knockoff": {"RG-L": 23.2 / 26.5}, "ada": {"RG-L": 24.7 / 26.5}}
    table = {"about": "Copies of one victim.", "variants": ["none", "knockoff", "ada"]}
    return {
        **{"seeds": [1, 2], "metrics": [FINDINGS, ROUGE], "directions": {FINDINGS: "higher", ROUGE: "higher"}},
        **{"n": 300, "patients": 180},
        "variants": {
            "none": {**variant("none", 0.04, 0.06, changes="Before any query."), "curve": {}},
            "knockoff": variant("knockoff", 0.2, 0.2),
            "ada": variant("ada-steal", 0.4, 0.5, changes="Pictures are moved."),
        },
        "tables": {"Table 3: surrogates": {**table, "published": published, "published_ratio": shares}},
        "contrasts": [
            {"name": "ada", "against": "knockoff", "how": "seeds and patients", "metrics": {FINDINGS: gained}}
        ],
        "pairwise": [
            {
                **{"a": "ada", "b": "knockoff", "judge": "rules", "n": [300, 300], "equal": seeded(0.2, 0.3)},
                **{"a_better": seeded(0.6, 0.5), "b_better": seeded(0.2, 0.2), "net": seeded(0.4, 0.3)},
            }
        ],
        "controls": {
            **{"seed": 1, "n": 300, "reached": {"bleu4:coco": {"ada": ["the"]}}},
            "values": {"ada": {"bleu4:coco": measure(0.02)}, "the": {"bleu4:coco": measure(0.03)}},
        },
        **changed,
    }
