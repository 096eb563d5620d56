"""The eval engine group: real SGLang servers, what they hold, and the proof of it."""
