import argparse


def get_slime_extra_args_provider(add_custom_arguments=None):
    def add_slime_arguments(parser):
        def add_eval_arguments(parser):
            parser.add_argument("--eval-interval", type=int, default=None)
            return parser

        # those of the caller come first
        if add_custom_arguments is not None:
            parser = add_custom_arguments(parser)

        parser.add_argument("--num-rollout", type=int, default=1)
        return add_eval_arguments(parser)

    return add_slime_arguments


def parse_args(add_custom_arguments=None):
    provider = get_slime_extra_args_provider(add_custom_arguments)
    parser = provider(argparse.ArgumentParser(allow_abbrev=False))
    args, _ = parser.parse_known_args()
    return args
