"""What live eval costs an eval engine: how soon a version answers, how much of the engine's rate is left.

    python -m benchmarks.evals [--gb 0.1] [--rounds 5] [--out FILE]

The real service over the real SGLang server on a CPU; versions are received in this process by the
real receiver. Peers are the same server's own load and rate, asked without live-eval.
"""
