"""Small, marked insertions in slime's own files, so that plain `python train.py --eval-mode ...` works.

It owns which insertions there are, where they go and how they come out again. It does not know what the
hooks do. Invariant: taking the insertions out of a file gives, byte for byte, the file as its owner has it.
"""
