"""Pure scheduling: told what happened, the scheduler answers what to do."""
