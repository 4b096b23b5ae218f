"""How long a collective of a framework takes, against its bytes: the exchange without training."""
