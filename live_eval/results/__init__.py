"""The durable record of every evaluation, and the sinks that tell others about it."""
