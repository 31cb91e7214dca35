"""The reader's stages, in order: tokens, phrases, sentences, statements, assertion, attributes, coreference, drafts."""
