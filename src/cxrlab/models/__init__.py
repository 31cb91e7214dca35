"""Report models, encoders and text models, by name: `hf:FOLDER`, `builtin:NAME`, `stub:normal`, `retrieval:CORPUS`.

This package does not read corpora; callers pass the images to retrieve from.
"""
