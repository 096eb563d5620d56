import httpx

CLIENT: list[httpx.AsyncClient] = []


def get_rollout_num_engines(args) -> int:
    return args.rollout_num_engines


def init_http_client(args):
    limits = httpx.Limits(max_connections=args.sglang_server_concurrency * get_rollout_num_engines(args))
    CLIENT.append(httpx.AsyncClient(limits=limits, timeout=None, trust_env=False))


async def post(url, payload, max_retries=60, headers=None):
    response = await CLIENT[0].post(url, json=payload)
    response.raise_for_status()
    return response.json()
