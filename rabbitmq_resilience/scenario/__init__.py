"""Scenarios: their model, fault files, the schema and the documentation of fault files."""
