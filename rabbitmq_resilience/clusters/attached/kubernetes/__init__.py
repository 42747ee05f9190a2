"""Brokers in pods, reached by the API of Kubernetes: imported only where a cluster file offers it."""
