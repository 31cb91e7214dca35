"""Several candidate reports a study in, preference pairs out; pairs in, an aligned model out.

`sample` draws the candidates, `judge` gives each a reward, `pair` makes pairs of the rewards or of what people said;
`train` learns from the pairs.
"""
