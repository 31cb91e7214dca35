"""Images in, perturbed images out: mechanisms without verdicts, for audits of models that one owns or may test."""
