"""Find the programs that clusters need, and fetch the missing ones."""
