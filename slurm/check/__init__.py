"""Whether a machine is as fast as its reference: measure a few minutes, compare, say so."""
