"""What a hostile world does to the package; POSH_ADVERSARY=1 runs the long versions."""
