"""Steady syncs and steady evals for as long as told, and whether anything grows meanwhile.

Publisher in a trainer process, receiver, store, service and the real SGLang, all as a user has them.
"""
