"""Run the load of a scenario: publishers, consumers and their queues."""
