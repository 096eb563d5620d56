"""Prints a run's call log, one call a line.   usage: show.py OUT_DIR"""

import json
import sys
from pathlib import Path

start = None
for line in Path(sys.argv[1], "calls.jsonl").read_text().splitlines():
    call = json.loads(line)
    t, _ = call.pop("t"), call.pop("pid")
    start = start or t
    rest = {
        k: v for k, v in call.items() if k not in ("who", "method", "reply", "load_format") and v is not None
    }
    print(f"{t - start:7.2f} {call['who']:18} {call['method']:32}", rest)
