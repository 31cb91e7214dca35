"""The phantom: synthetic chest radiographs whose findings are known exactly.

Reading order: `acquisition_presets` and `anatomy` (numbers), `image_plane` (image plane and primitives), `thorax`
(the healthy chest), `findings` (what is painted onto it), `render` (all together, with the exposure), `corpus`
(written to disk).
"""
