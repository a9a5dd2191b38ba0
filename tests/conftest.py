"""Puts tests/ on the import path: `harness` is what all kinds of tests may share."""
