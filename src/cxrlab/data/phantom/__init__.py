"""The phantom: a synthetic world of chest radiographs whose truth is known exactly.

Reading order: `presets` and `anatomy` (numbers), `frame` (image plane and primitives), `thorax` (curves and
fields), `projection` (the healthy chest), `lung`, `pleura`, `body`, `devices` (what is painted onto it),
`appearance` (the table of them), `image` (exposure), `render` (all together), `corpus` (onto disk).
"""
