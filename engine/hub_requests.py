"""Requests to the hub that can be broken off at once, and what can go wrong with them as sentences.

huggingface_hub gives the address (HF_ENDPOINT) and the stored token. The requests are made here: its own client
refuses everything while HF_HUB_OFFLINE is set, which is read once per process and guards every load against waiting
for a network, and its waits cannot be broken off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from engine.control import Control
from engine.errors import Cancelled, RemoteFailed, WorkbenchError

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOK_EVERY_S = 0.05  # for a cancel
CONNECT_S, READ_S = 10.0, 30.0
LOGIN = "hf auth login"


class Busy(Exception):
    """The hub has a problem of its own, which may pass."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def endpoint() -> str:
    """The hub's address, without a slash at its end."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def has_token() -> bool:
    """Whether a person has logged in on this computer."""
    return bool(_token())


def _token() -> str:
    from huggingface_hub import get_token

    try:
        return get_token() or ""
    except Exception as error:  # it may ask a network for a newer one, and each way fails in its own manner
        log.warning("the stored token cannot be had: %s", error)
        return ""


def run(work: Callable[[httpx2.AsyncClient], Awaitable[T]], control: Control) -> T:
    """Runs work in an event loop of its own: only so can every wait be broken off at once. Raises Cancelled."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Lookups())
    try:
        return loop.run_until_complete(_watched(work, control))
    finally:
        loop.close()


class _Lookups(ThreadPoolExecutor):
    """Where the loop looks up names: a lookup cannot be broken off, and the end of the program must not wait for it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **options))
                except Exception as error:
                    future.set_exception(error)

        threading.Thread(target=work, name="name lookup", daemon=True).start()
        return future


async def _watched(work: Callable[[httpx2.AsyncClient], Awaitable[T]], control: Control) -> T:
    import httpx2

    headers = {"user-agent": "glasswork"}
    if token := _token():
        headers["authorization"] = f"Bearer {token}"  # the client drops it when it is sent on to another host
    timeout = httpx2.Timeout(READ_S, connect=CONNECT_S)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, follow_redirects=True) as client:
        task = asyncio.ensure_future(work(client))
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY_S))[0]:
            if control.cancelled():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
                raise Cancelled
        try:
            return task.result()
        except WorkbenchError:
            raise
        except Busy as error:
            raise RemoteFailed(
                "The hub has a problem of its own (status {status}).",
                "Try again in a while; what has arrived stays.",
                status=error.status,
            ) from None
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise _unreachable(error) from None
        except httpx2.HTTPError as error:
            raise no_hub(str(error)) from None


def _unreachable(error: Exception) -> RemoteFailed:
    import httpx2

    host = endpoint().partition("://")[2] or endpoint()
    if isinstance(error, httpx2.ProxyError):
        return RemoteFailed(
            "The proxy on the way to {host} refuses: {reason}.", "Check HTTPS_PROXY.", host=host, reason=str(error)
        )
    if isinstance(error, httpx2.TimeoutException):
        return RemoteFailed(
            "{host} does not answer.",
            "Check the connection and try again. Models that are on this computer load without it.",
            host=host,
        )
    if isinstance(error, httpx2.ConnectError):
        return RemoteFailed(
            "{host} cannot be reached: {reason}.",
            "Check the connection and try again. Models that are on this computer load without it.",
            host=host,
            reason=_reason(error),
        )
    return RemoteFailed(
        "The connection to {host} broke off.",
        "Check the connection and let it go on; what has arrived stays.",
        host=host,
    )


def _reason(error: BaseException) -> str:
    """Why no connection came about, from what lies beneath the library's exception."""
    beneath: list[BaseException] = [error]
    for each in beneath:  # grows while it is walked through
        if isinstance(each, BaseExceptionGroup):
            beneath += each.exceptions
        beneath += [inner for inner in (each.__cause__, each.__context__) if inner is not None and inner not in beneath]
        if isinstance(each, socket.gaierror):
            return "no address is known for this name, so perhaps there is no network"
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({each.verify_message})"
        if isinstance(each, ConnectionRefusedError):
            return "nothing answers there"
    return str(error).strip().rstrip(".") or "no connection"


def no_hub(reason: str = "") -> RemoteFailed:
    log.warning("no answer of a hub: %s", reason)
    return RemoteFailed(
        "What answers at {host} is no hub of models; perhaps a sign-in page of this network.",
        "Open any page in a browser to sign in to the network; check HF_ENDPOINT if it is set.",
        host=endpoint(),
    )


def raise_for(response: httpx2.Response, hub_id: str = "", file: str = "") -> None:
    """A status as a sentence. The hub says 401 to strangers for gated, private and missing repositories alike."""
    status, code = response.status_code, response.headers.get("x-error-code", "")
    if status < 400:
        return
    log.warning("%s: %s %s %s", response.url, status, code, response.headers.get("x-error-message", ""))
    if status == 429:
        raise RemoteFailed(
            "The hub asks for patience: too many requests from here{wait}.",
            "Wait a little and try again; logging in ({login}) raises the limit.",
            wait=_wait_of(response),
            login=LOGIN,
        )
    if code == "GatedRepo" or (status == 403 and hub_id):
        if has_token():
            raise RemoteFailed(
                "{id} is gated, and the account that is logged in here has not been let in.",
                "Accept its terms on its page with this account, and try again when access is granted.",
                id=hub_id,
            )
        raise RemoteFailed(
            "{id} is gated: its makers let people in who have accepted their terms.",
            "Accept the terms on its page, log in on this computer ({login}), and try again.",
            id=hub_id,
            login=LOGIN,
        )
    if status == 401 and "credentials" in response.headers.get("x-error-message", "").lower():
        raise RemoteFailed(
            "The hub does not take the token that is stored on this computer.", "Log in again: {login}.", login=LOGIN
        )
    if code in ("EntryNotFound", "RevisionNotFound") or (status == 404 and file):
        raise RemoteFailed(
            "{file} is no longer there in this version of {id}.",
            "Give this download up and start it again.",
            file=file or "It",
            id=hub_id,
        )
    if status in (401, 404) and hub_id:
        raise RemoteFailed(
            "There is no {id} on the hub, or it is private.",
            "Check the name; for a private one log in on this computer: {login}.",
            id=hub_id,
            login=LOGIN,
        )
    if status >= 500:
        raise Busy(status)
    raise RemoteFailed("The hub refuses (status {status}).", "Try again in a while.", status=status)


def _wait_of(response: httpx2.Response) -> str:
    seconds = response.headers.get("retry-after", "")
    if not seconds.isdigit():
        from huggingface_hub.utils import parse_ratelimit_headers

        info = parse_ratelimit_headers(response.headers)
        seconds = str(info.reset_in_seconds) if info else ""
    return f" (wait {seconds} s)" if seconds else ""


async def get_json(client: httpx2.AsyncClient, url: str, parameters: list[tuple[str, Any]], hub_id: str = "") -> object:
    response = await client.get(url, params=parameters)
    raise_for(response, hub_id)
    try:
        return response.json()
    except ValueError:
        raise no_hub() from None
