"""How the cost of a sync grows: with bytes, tensors, kept versions, and datasets.

    python -m benchmarks.growth [--out FILE] [--chart PNG] [--quick]

The parts are the real ones; only engines that never come free stand where an eval engine would be.
"""
