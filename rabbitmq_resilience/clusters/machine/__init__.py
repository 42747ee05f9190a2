"""What a cluster takes of the machine, and what gives that back whatever happens."""
