"""Make tables from the directories of many runs, and from the ledger of runs."""
