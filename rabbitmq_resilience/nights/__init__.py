"""What is kept of each night, and what nights say together: results for machines and for people."""
