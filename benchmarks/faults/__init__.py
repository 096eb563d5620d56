"""Breaks syncs in every way that is known, counts what becomes of them, and checks what was sealed.

python -m benchmarks.faults --transport ray|nccl --syncs N --seed S --json FILE
"""
