"""A running service as the command line reaches it: by its run directory, or by its address.

By the directory it is the service's own socket and ledger, on the same host and as the same user; by
the address it is the HTTP API. Both give the items of docs/http_api.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from live_eval.errors import CONVERT_IT, ConfigError, LiveEvalError, PeerError, TransportError

if TYPE_CHECKING:
    from live_eval.results.pages import LedgerPages
    from protocol.messages import Message

REQUEST_TIMEOUT_S = 30.0
POLL_S = 0.5
_TOKEN = "give the service's token with --token-file FILE, or in LIVE_EVAL_HTTP_TOKEN"
ADVICE = {
    "no_token": _TOKEN,
    "wrong_token": _TOKEN,
    "no_such_job": "`live-eval jobs` lists the jobs",
    "already_ended": "",
    "config": "",
    "corrupt_version": "give the directory of a whole Hugging Face safetensors checkpoint",
}
"""By the error's code, what a person at a terminal does, where the API's own words are for its clients."""


class ServiceLink(Protocol):
    """What the commands need of a service; LiveEvalError where it does not do it."""

    def submit(self, path: Path, datasets: Sequence[str], priority: int) -> list[str]:
        """Ids of the jobs."""
        ...

    def cancel(self, job_id: str) -> None:
        """The job is wanted no more."""
        ...

    def jobs(self, *, statuses: Sequence[str], dataset: str | None, limit: int) -> dict[str, Any]:
        """A page of jobs, newest first."""
        ...

    def job(self, job_id: str) -> dict[str, Any]:
        """One job."""
        ...


def add_link_options(parser: argparse.ArgumentParser) -> None:
    """Add --run and --url, of which one is needed."""
    from live_eval.commands.arguments import absolute_path, run_directory

    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--run", dest="run_dir", type=run_directory, metavar="DIR", help="the service's --out")
    where.add_argument(
        "--url", metavar="URL", help="the service's address, for example http://127.0.0.1:8555"
    )
    parser.add_argument(
        "--token-file",
        type=absolute_path,
        metavar="FILE",
        help="with --url: file with the service's token; else the environment's LIVE_EVAL_HTTP_TOKEN",
    )


def open_link(args: argparse.Namespace) -> ServiceLink:
    """The service that the options name."""
    from live_eval.commands.service_options import read_token

    if args.url:
        return ByUrl(args.url, token=read_token(args.token_file))
    return ByRunDir(args.run_dir)


def wait_for(link: ServiceLink, job_ids: Sequence[str]) -> list[dict[str, Any]]:
    """The jobs when all have ended."""
    while True:
        jobs = [link.job(job_id) for job_id in job_ids]
        if all(job["status"] not in ("waiting", "running") for job in jobs):
            return jobs
        time.sleep(POLL_S)


def refusal(code: str, what: str, what_to_do: str = "") -> str:
    """What a service refused, in the command line's words."""
    advice = "" if CONVERT_IT in what else ADVICE.get(code, what_to_do)
    return f"{what}; {advice}" if advice else what


class ByRunDir:
    """Over the service's socket, and its ledger."""

    def __init__(self, directory: Path) -> None:
        from live_eval.rundir import RunDir

        self._run_dir = RunDir(directory)

    def submit(self, path: Path, datasets: Sequence[str], priority: int) -> list[str]:
        """As the socket answers."""
        from protocol.messages import JobsAccepted, SubmitCheckpoint

        message = SubmitCheckpoint(path=str(path), datasets=tuple(datasets), priority=priority)
        answer = self._ask(message)
        assert isinstance(answer, JobsAccepted)
        return list(answer.job_ids)

    def cancel(self, job_id: str) -> None:
        """As the socket answers."""
        from protocol.messages import CancelJob

        self._ask(CancelJob(job_id=job_id))

    def jobs(self, *, statuses: Sequence[str], dataset: str | None, limit: int) -> dict[str, Any]:
        """Out of the ledger; the service need not run."""
        from live_eval.results.pages import Filter

        with self._ledger() as ledger:
            which = Filter(statuses=tuple(statuses), dataset=dataset)
            total, rows = ledger.job_page(which, offset=0, limit=limit)
            items = [_item(ledger, row.job_id) for row in rows]
        return {"total": total, "offset": 0, "limit": limit, "items": items}

    def job(self, job_id: str) -> dict[str, Any]:
        """Out of the ledger."""
        with self._ledger() as ledger:
            return _item(ledger, job_id)

    def _ledger(self) -> LedgerPages:
        from live_eval.results.pages import LedgerPages

        return LedgerPages.open_pages(self._run_dir.ledger)

    def _ask(self, message: Message) -> Message:
        from live_eval.channel import BlockingClient, socket_path
        from live_eval.rundir import SERVICE_SOCKET

        root = self._run_dir.root
        with BlockingClient(socket_path(root, SERVICE_SOCKET)) as client:
            try:
                return client.request(message, timeout_s=REQUEST_TIMEOUT_S)
            except PeerError as error:
                raise LiveEvalError(refusal(error.remote_code, error.message)) from error
            except TransportError as error:
                raise TransportError(f"no service answers in {root}: {error}; is it running?") from error


class ByUrl:
    """Over HTTP."""

    def __init__(self, url: str, *, token: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"--url is {url}: give it as http://HOST:PORT")
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    def submit(self, path: Path, datasets: Sequence[str], priority: int) -> list[str]:
        """POST /checkpoints."""
        body = {"path": str(path), "datasets": list(datasets), "priority": priority}
        return self._request("POST", "/checkpoints", body=body)["job_ids"]

    def cancel(self, job_id: str) -> None:
        """POST /cancel."""
        self._request("POST", "/cancel", body={"job_id": job_id})

    def jobs(self, *, statuses: Sequence[str], dataset: str | None, limit: int) -> dict[str, Any]:
        """GET /jobs."""
        query: dict[str, Any] = {"limit": limit, "status": list(statuses)}
        return self._request("GET", "/jobs", query=query | ({"dataset": dataset} if dataset else {}))

    def job(self, job_id: str) -> dict[str, Any]:
        """GET /jobs/ID."""
        return self._request("GET", f"/jobs/{quote(job_id)}")

    def _request(self, method: str, path: str, *, query: Any = None, body: Any = None) -> Any:
        import httpx

        try:
            answer = httpx.request(
                method,
                f"{self._url}/api/v1{path}",
                params=query,
                json=body,
                headers=self._headers,
                timeout=REQUEST_TIMEOUT_S,
            )
            content = answer.json()
        except httpx.HTTPError as error:
            raise TransportError(
                f"no service answers at {self._url}: {error}; give the address that `live-eval serve` printed"
            ) from error
        except ValueError as error:
            raise TransportError(f"what answers at {self._url} is no live-eval service") from error
        if answer.status_code >= 400:
            problem = content.get("error", {})
            raise LiveEvalError(
                refusal(
                    problem.get("code", ""), problem.get("what", answer.text), problem.get("what_to_do", "")
                )
            )
        return content


def _item(ledger: LedgerPages, job_id: str) -> dict[str, Any]:
    from live_eval.http.views import job_item

    row = ledger.job(job_id)
    priority = ledger.priorities().get(row.target.key, 0)
    return job_item(row, result=ledger.result(job_id), priority=priority)
