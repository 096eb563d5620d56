"""live-eval's wire protocol: typed, versioned messages in MessagePack.

This package stands alone: it imports neither live_eval nor torch nor ray, so that a
trainer, a test or another implementation can speak the protocol without either.
docs/protocol.md is the specification.
"""
