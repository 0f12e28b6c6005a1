"""Runnable examples with tests. `shared` has what both demos use."""
