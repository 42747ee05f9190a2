"""Clusters that are there already."""
