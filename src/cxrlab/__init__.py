"""A workbench for chest X-ray report models: build one, align it, measure it, find out how it breaks.

The names below are imported when they are first used, so that `import cxrlab` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cxrlab.data.corpus import load_corpus as load_corpus
    from cxrlab.evaluation.certify import certify as certify
    from cxrlab.evaluation.compare import compare as compare
    from cxrlab.evaluation.load_model import load_model as load_model
    from cxrlab.evaluation.score import score as score
    from cxrlab.findings.reader import read as read

_PUBLIC = {
    "certify": "cxrlab.evaluation.certify:certify",
    "compare": "cxrlab.evaluation.compare:compare",
    "load_corpus": "cxrlab.data.corpus:load_corpus",
    "load_model": "cxrlab.evaluation.load_model:load_model",
    "read": "cxrlab.findings.reader:read",
    "score": "cxrlab.evaluation.score:score",
}
__all__ = ["__version__", "certify", "compare", "load_corpus", "load_model", "read", "score"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cxrlab' has no attribute {name!r}")
    from cxrlab.core.registry import load_reference

    return load_reference(_PUBLIC[name])


def __dir__() -> list[str]:
    return sorted(__all__)
