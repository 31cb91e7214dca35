"""Fixtures of the data room."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# Tests are imported by path, so a module of helpers beside them has to be made known by hand.
_spec = importlib.util.spec_from_file_location("corpora", Path(__file__).with_name("corpora.py"))
assert _spec is not None and _spec.loader is not None
sys.modules["corpora"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["corpora"])
