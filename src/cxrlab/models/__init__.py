"""Things that write reports, by name: `stub:normal`, `retrieval:CORPUS`.

`names.load_model` turns a name into an `ImageToText`; every kind is one file and one row of
`names.KINDS`. This room knows no corpus: images to look among are handed to it.
"""
