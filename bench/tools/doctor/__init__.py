"""`python -m bench doctor`: a check whether this machine or launch is fit for measurements."""
