"""What load: publishers and consumers, and how they are run."""
