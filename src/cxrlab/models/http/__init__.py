"""Models behind an address: language models and report models that speak the protocol of chat completions."""
