"""live-eval's receiver misbehaves on purpose: SLIME_CPU_FAULTS='{"WEIGHT_VERSION": "FAULT"}'."""

import json
import os
import signal
import subprocess
import time

SLOW_S = 8
PLAN = json.loads(os.environ.get("SLIME_CPU_FAULTS", "{}"))


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


def _fault_of(message, where: str) -> str:
    header = getattr(message, "header", message)
    at, _, fault = PLAN.get(str(getattr(header, "weight_version", None)), "").partition(".")
    return fault if at == where else ""


def _faulty_begin(request):
    from protocol.codec import decode
    from protocol.messages import SyncBegin

    def faulty(self, data):
        message = decode(data)
        fault = _fault_of(message, "begin") if isinstance(message, SyncBegin) else ""
        answer = _carry_out(fault) if fault else None
        return request(self, data) if answer is None else answer

    return faulty


def install(module):
    """Wrap RayReceiver: a fault `begin.X` comes at the begin of that sync, `bucket.X` at a bucket."""
    if not PLAN:
        return
    from protocol.codec import decode

    cls = module.RayReceiver
    init, bucket = cls.__init__, cls.bucket

    def faulty_init(self, config):
        if PLAN.get("0") == "start.raise":
            raise RuntimeError("a fault on purpose")
        init(self, config)

    def faulty_bucket(self, data, payload):
        fault = _fault_of(decode(data), "bucket")
        answer = _carry_out(fault) if fault else None
        return bucket(self, data, payload) if answer is None else answer

    cls.__init__, cls.request, cls.bucket = faulty_init, _faulty_begin(cls.request), faulty_bucket


def install_member(module):
    """Wrap RayFacade, a member of slime's group: the same, and `bucket.refuse`, as a full store does."""
    if not PLAN:
        return
    from live_eval.reasons import DiscardReason
    from protocol.codec import decode

    cls = module.RayFacade
    receive = cls.receive

    def faulty_receive(self, data):
        message = decode(data)
        fault = _fault_of(message, "bucket")
        if fault == "refuse":
            self._receiver.fail_open(DiscardReason.STORE_FULL, "a fault on purpose")
        elif fault:
            _carry_out(fault)
        return receive(self, data)

    faulty_receive.__dict__.update(receive.__dict__)  # Ray's group of calls
    cls.request, cls.receive = _faulty_begin(cls.request), faulty_receive
