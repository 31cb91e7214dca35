"""The stages of the report reader; what phrases mean is in `tables/`.

In order: tokens, phrases, sentences, statements, assertion, attributes, coreference, findings. How "tiny apical
pneumothorax" is read is in `tables/severity_and_change.json`, `sides_and_locations.json` and `mentions_pleura.json`.
"""
