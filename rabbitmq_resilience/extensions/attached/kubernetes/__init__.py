"""Reach brokers in pods by the API of Kubernetes. Imported only if a cluster file offers it."""
