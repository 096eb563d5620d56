"""What live-eval costs a trainer, measured beside what the alternatives cost.

    python -m benchmarks [--gb 0.25 1] [--threads 1] [--out FILE] [--chart FILE] [--quick]

Every figure is a ratio of two times taken in one run on one machine: the parts are the real ones
(publisher, Ray, receiver actor, store), the peers are what one would use instead.
"""
