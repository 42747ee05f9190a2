"""Parts that the core does not need: each is reached by name through ``rabbitmq_resilience.extension_points``."""
