from dataclasses import dataclass


@dataclass
class EvalDatasetConfig:
    name: str
    path: str
    n_samples_per_eval_prompt: int = 1
    max_response_len: int = 16
