"""The real SGLang server on a machine without a GPU: stand-ins, arguments and environment."""
