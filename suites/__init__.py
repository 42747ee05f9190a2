"""Pytest suites: thin tests that state scenarios. ``scenario.py`` plays one."""
