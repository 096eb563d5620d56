"""The shell around the scheduler: sees what the store holds, carries out what is decided.

feed.py         what changed in the store, as events
evaluator.py    one evaluation on the engines
records.py      what becomes of jobs in the ledger, and who is told
coordinator.py  the loop: events into the scheduler, its actions out
"""
