"""Shared words of every room: records, vocabulary, protocols, tables, files, configs, runs and errors.

Nothing here imports torch, and nothing here imports another room.
"""
