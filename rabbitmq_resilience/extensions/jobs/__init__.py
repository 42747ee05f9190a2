"""Run the suite as a Job of Kubernetes next to the brokers, and fetch its records."""
