"""Make tables from the directories of many runs, and from the ledger of runs."""

from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
