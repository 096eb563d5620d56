"""How the real SGLang is started on a CPU: its arguments, environment and stand-in packages.

The stand-ins go to the end of the server process' own import path, never into anybody else's,
so a real `sgl_kernel` or `torchvision` always comes first.
"""

from __future__ import annotations

from pathlib import Path

STUBS_DIR = Path(__file__).resolve().parent / "stubs"

CPU_ARGS: tuple[str, ...] = (
    "--device", "cpu",
    "--attention-backend", "torch_native",
    "--sampling-backend", "pytorch",
    "--max-total-tokens", "16384",
    "--mem-fraction-static", "0.1",
    "--disable-overlap-schedule",
    "--disable-cuda-graph",
    "--skip-server-warmup",
    # Without it an idle server burns a core.
    "--sleep-on-idle",
)  # fmt: skip

CPU_ENV: dict[str, str] = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Small models gain nothing from more threads, and a laptop's other processes lose much.
    "OMP_NUM_THREADS": "1",
}
"""Set unless the environment of the starter has them already."""
