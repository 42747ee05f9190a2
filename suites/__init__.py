"""Pytest suites: thin tests that state scenarios."""
