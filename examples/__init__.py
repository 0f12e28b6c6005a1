"""Runnable examples, each tested."""
