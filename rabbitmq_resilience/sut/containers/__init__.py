"""Run brokers in containers, and act on the containers and on the packets between them."""
