"""What load: publishers, consumers, their catalogue, and how they are run."""
