"""Keep the results of each night, for machines and for people, and analyse them over many nights."""
