"""A model behind an OpenAI-compatible address, with limits, accounts, quotas and a guard."""
