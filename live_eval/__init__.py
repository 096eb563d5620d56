"""Background evaluation of an LLM that is being trained, on weights that are exactly known."""
