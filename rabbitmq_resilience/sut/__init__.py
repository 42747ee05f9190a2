"""Clusters of brokers, the drivers that form them, and the links between them."""
