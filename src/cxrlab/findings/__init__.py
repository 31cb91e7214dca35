"""Report text and findings: `reader` reads text into findings, `narrator` writes text from them."""
