"""What an owner may put before a report model: refusals, quotas, plainer words, a mark; each checked and attacked."""
