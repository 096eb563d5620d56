"""live-eval's side of a sync: the session that judges it, and a receiver for each transport."""
