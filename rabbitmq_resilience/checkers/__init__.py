"""What must hold: one checker a file, each a pure function of a history."""
