"""Model extraction by queries: attacks (Knockoff, ADA-Steal), the query ledger, fidelity, detection and defences."""
