"""What load: publishers, consumers, and how they are run."""
