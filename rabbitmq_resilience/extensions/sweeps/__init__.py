"""Play a scenario over values of its fields; tabulate and compare the runs."""
