"""Runnable examples with tests. `shared` has what several demos use."""
