"""What runs: topologies, the catalogue of them, cluster drivers and links."""
