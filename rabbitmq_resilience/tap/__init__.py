"""Record what clients and brokers say to each other in AMQP 0-9-1, and hold back or change single methods."""
