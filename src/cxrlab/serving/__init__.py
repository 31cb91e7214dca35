"""A model behind an OpenAI-compatible address, with limits, accounts, books and a guard."""
