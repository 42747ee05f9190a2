"""Set-up: fetch, unpack and build the programs and images that clusters are made of."""
