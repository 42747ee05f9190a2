"""The programs that clusters are made of: found where they are, and fetched where they are not."""
