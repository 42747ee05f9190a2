"""Brokers as processes of this user on loopback."""
