"""Brokers in containers, and what can be done to those and to the packets between them."""
