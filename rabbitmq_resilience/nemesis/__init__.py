"""Faults, one in each file, with their targets, conditions and proofs, and the nemesis that plays them."""
