"""Two lists of findings, compared as the metrics compare two reports."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.records import Finding
from cxrlab.findings.merge_statements import side_by_side
from cxrlab.metrics.finding_comparison import Comparison, compare_merged_findings
from cxrlab.metrics.report_pairs import Context


def compare_findings(
    reference: Sequence[Finding], candidate: Sequence[Finding], context: Context | None = None
) -> Comparison:
    """The comparison of two reports that state these findings."""
    return compare_merged_findings(*side_by_side(reference, candidate), context or Context())
