"""What a run may do after its windows."""
