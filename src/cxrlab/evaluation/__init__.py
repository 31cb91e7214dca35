"""A model and studies in, predictions out.

`generate` asks a model for a report of every study of a split and writes them into a run folder;
`loading.load_model` is the model room's loader with the data room's corpora behind it.
"""
