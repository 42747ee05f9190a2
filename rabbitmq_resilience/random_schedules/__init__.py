"""Schedules that nobody thought of: how they are drawn, played and shrunk."""
