"""Metrics that need something of the user's: graphs in a file, an encoder's weights, CheXbert's weights.

They are scored on the candidates alone, without floors: a graph file knows no control, and weights
would be run five times more.
"""

from __future__ import annotations

from cxrlab.evaluation.config import Extras
from cxrlab.metrics.tally import Family


def extra_families(extras: Extras) -> list[Family]:
    """The families that these make possible; RadCliQ when all three are there."""
    found: list[Family] = []
    radgraph = bert = chexbert = None
    if extras.graphs is not None:
        from cxrlab.metrics.graphs import graph_source
        from cxrlab.metrics.radgraph import RadGraphF1

        radgraph = RadGraphF1(graph_source(extras.graphs))
        found.append(radgraph)
    if extras.encoder is not None:
        from cxrlab.metrics.bertscore import DISTILROBERTA_5, BertScore
        from cxrlab.models.text_encoders import LocalTokenEncoder

        encoder = LocalTokenEncoder(extras.encoder, extras.layer)
        bert = BertScore(encoder, baseline=DISTILROBERTA_5)
        found.append(BertScore(encoder))
    if extras.chexbert is not None and extras.bert is not None:
        from cxrlab.metrics.labels import ChexpertLabels
        from cxrlab.models.text_encoders import CheXbert

        chexbert = CheXbert(extras.chexbert, extras.bert)
        found.append(ChexpertLabels(chexbert, prefix="chexbert"))
    if radgraph and bert and chexbert:
        from cxrlab.metrics.radcliq import RadCliq, semb

        names = {"radgraph": radgraph.source.name, "bertscore": bert.encoder.name, "semb": chexbert.name}
        found.append(RadCliq({"radgraph": radgraph.combined, "bertscore": bert.f1, "semb": semb(chexbert)}, names))
    return found
