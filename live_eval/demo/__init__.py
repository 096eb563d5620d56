"""The main job in small: a real model, a real trainer and the real engine on a CPU.

driver (main.py) -> engines, service, receiver, trainer (trainer.py). See docs/architecture.md.
"""
