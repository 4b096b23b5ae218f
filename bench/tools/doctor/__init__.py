"""`python -m bench doctor`: whether this machine, or this launch, is fit to be measured on."""
