"""Renderers: pure functions, tested without a terminal."""
