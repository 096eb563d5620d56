"""What slime's image adds to SGLang and PyPI's has not: an engine's /pull_weights, for one engine a host."""

import json
import shutil
from pathlib import Path

import numpy as np

from live_eval.subscriber.delta import checksum_of, decoded, read_delta
from live_eval.tensor_files import read_header


def pull_weights(self, target_version):
    source, local = Path(self.args.update_weight_disk_dir), Path(self.args.update_weight_local_checkpoint_dir)
    if target_version == 0:
        shutil.rmtree(local, ignore_errors=True)
        shutil.copytree(self.args.hf_checkpoint, local)
        return
    version_dir = source / f"weight_v{target_version:06d}"
    meta = json.loads((version_dir / "model.safetensors.index.json").read_text())["metadata"]
    changes = {}
    for path in sorted(version_dir.glob("*.safetensors")):
        changes |= read_delta(path)
    for path in sorted(local.glob("*.safetensors")):
        data = bytearray(path.read_bytes())
        for name, slot in read_header(path).slots.items():
            if name in changes:
                old = np.frombuffer(bytes(data[slot.begin : slot.end]), dtype=np.uint8)
                diff, checksum = changes[name]
                new = decoded(diff, old, encoding=meta["delta_encoding"])
                assert checksum_of(meta["checksum_format"], new) == checksum, name
                data[slot.begin : slot.end] = new.tobytes()
        path.write_bytes(data)
