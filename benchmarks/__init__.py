"""What live-eval costs a trainer, measured beside what the alternatives cost.

    python -m benchmarks [--gb 0.25 1] [--small 100000] [--threads 1] [--out FILE] [--chart FILE] [--quick]

A figure is a ratio of two times taken in one run on one machine, or microseconds a tensor: the parts are
the real ones (publisher, Ray, receiver actor, store), the peers are what one would use instead.
"""
