"""Slow and obvious answers to what the tap does, written from the grammar of AMQP 0-9-1 alone."""
