"""Networks of the systems that measured data parallelism before; each file names its source."""
