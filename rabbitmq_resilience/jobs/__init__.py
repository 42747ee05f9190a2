"""The suite as a Job of Kubernetes, beside the brokers: what is made there, and how what was recorded comes back."""
