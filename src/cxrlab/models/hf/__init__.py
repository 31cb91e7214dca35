"""Models of the Hugging Face stack: any image-text-to-text checkpoint behind one batched, differentiable interface."""
