"""Play one run from its beginning to its verdict, and a session of runs."""
