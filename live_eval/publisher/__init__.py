"""The trainer's side of a sync: one small interface, one publisher for each transport."""
