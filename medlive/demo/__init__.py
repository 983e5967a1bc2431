"""Four sample communities on this machine, sample evidence, recorded replies, and the whole loop over them."""
