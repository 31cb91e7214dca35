"""A victim and a pool of pictures in; ledger, surrogate and fidelity out; detectors and defences against it."""
