"""What runs: clusters of brokers, the drivers that form them, and the links between them."""
