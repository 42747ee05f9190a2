"""Handle one broker: its files and configuration, its versions, its management API."""
