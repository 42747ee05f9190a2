"""What every other room shares: links, topologies, nodes, and the base of models."""
