"""The sink: a `foreachBatch` function that commits each micro-batch exactly once."""
