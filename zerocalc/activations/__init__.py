"""What a training step keeps for its backward pass: rows of saved tensors, evaluated for a model and a batch."""
