"""Stand-ins for packages without a CPU wheel; this directory goes to the end of a server's path."""
