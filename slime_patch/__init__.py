"""live-eval in a slime job: slime's command line, its trainers and its life.

    python -m slime_patch.run train_async.py ...slime's flags... --eval-mode latest-synced
    python -m slime_patch apply SLIME_DIR     # the same hooks, written into slime's own scripts

`hooks` is what slime's code calls. Nothing here imports torch, ray or slime before it is used.
"""
