"""Bytes on disk, or a seed, turned into studies: corpora, pictures, splits, phantoms and scenes."""
