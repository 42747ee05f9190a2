"""What breaks: one fault a file, their targets, their conditions, their proofs, and the nemesis that plays them."""
