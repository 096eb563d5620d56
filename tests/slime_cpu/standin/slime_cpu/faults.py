"""live-eval's receiver misbehaves on purpose: SLIME_CPU_FAULTS='{"WEIGHT_VERSION": "FAULT"}'."""

import json
import os
import signal
import subprocess
import time

SLOW_S = 8


def _carry_out(fault: str) -> bytes | None:
    if fault == "raise":
        raise RuntimeError("a fault on purpose")
    if fault == "nonsense":
        return b"\x00 no message"
    if fault == "slow":
        time.sleep(SLOW_S)
    if fault == "die":
        os._exit(3)
    if fault == "freeze":
        subprocess.Popen(["sh", "-c", f"sleep {SLOW_S}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    return None


def install(module):
    """Wrap RayReceiver: a fault `begin.X` comes at the begin of that sync, `bucket.X` at a bucket."""
    plan = json.loads(os.environ.get("SLIME_CPU_FAULTS", "{}"))
    if not plan:
        return
    from protocol.codec import decode
    from protocol.messages import SyncBegin

    cls = module.RayReceiver
    init, request, bucket = cls.__init__, cls.request, cls.bucket

    def faulty_init(self, config):
        if plan.get("0") == "start.raise":
            raise RuntimeError("a fault on purpose")
        init(self, config)

    def fault_of(message, where):
        at, _, fault = plan.get(str(getattr(message, "weight_version", None)), "").partition(".")
        return fault if at == where else ""

    def faulty_request(self, data):
        message = decode(data)
        fault = fault_of(message, "begin") if isinstance(message, SyncBegin) else ""
        answer = _carry_out(fault) if fault else None
        return request(self, data) if answer is None else answer

    def faulty_bucket(self, data, payload):
        fault = fault_of(decode(data), "bucket")
        answer = _carry_out(fault) if fault else None
        return bucket(self, data, payload) if answer is None else answer

    cls.__init__, cls.request, cls.bucket = faulty_init, faulty_request, faulty_bucket
