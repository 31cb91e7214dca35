"""Train models in three stages: contrastive encoder, projector alignment, fine-tuning."""
