"""Run brokers as processes of this user on loopback."""
