from slime.observability import logging_utils
from slime.utils.misc import load_function


def log_eval_rollout_data(rollout_id, args, data, extra_metrics=None):
    if args.custom_eval_rollout_log_function_path is not None:
        custom = load_function(args.custom_eval_rollout_log_function_path)
        if custom(rollout_id, args, data, extra_metrics):
            return
    row = extra_metrics or {}
    for key in data:
        row[f"eval/{key}"] = sum(data[key]["rewards"]) / len(data[key]["rewards"])
    row["eval/step"] = rollout_id
    logging_utils.log(args, row, step_key="eval/step")
