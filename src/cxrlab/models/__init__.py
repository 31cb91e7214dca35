"""Report models, encoders and text models, by names such as `stub:normal` or `hf:FOLDER` (see `model_registry`)."""
