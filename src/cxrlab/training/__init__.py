"""Studies and a model in, a checkpoint out: contrastive encoder, projector alignment, fine-tuning."""
