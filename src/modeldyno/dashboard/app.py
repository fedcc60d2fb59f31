"""The table of routes, and the application that answers them.

Each page has a JSON twin below `/api/v1`. What writes is a POST of a form, or an operation of the API with an
operator's token; no route takes a command, a path of a file or an address to fetch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.routing import compile_path

from modeldyno.base import codec, plugins
from modeldyno.base.errors import ModelDynoError, RequestError, StoreError
from modeldyno.base.report.blocks import Table
from modeldyno.dashboard import (
    alerts,
    chart_pictures,
    device_pages,
    document_pages,
    home_page,
    network_page,
    registry_pages,
    registry_writes,
    trend_pages,
)
from modeldyno.dashboard.access import AccessRole
from modeldyno.dashboard.api_writes import API_WRITES, ApiWrite, NoSuchVersion
from modeldyno.dashboard.changes import change_stream
from modeldyno.dashboard.compression import Compression, takes_gzip
from modeldyno.dashboard.guard import API, LOGIN, TOKEN_NEEDED, Guard, Sessions
from modeldyno.dashboard.html import compressed_file, render_page, static_files
from modeldyno.dashboard.page import (
    DashboardPage,
    FormField,
    PageBlocks,
    PageForm,
    PageLink,
    PageLinks,
    PageRequest,
    PageText,
    SentFile,
)
from modeldyno.dashboard.regressions import RegressionSearch
from modeldyno.dashboard.schema import schemas
from modeldyno.dashboard.shared_pages import MOMENT, SharedPages
from modeldyno.dashboard.store_access import ChangeWatch

if TYPE_CHECKING:
    from starlette.datastructures import URL

    from modeldyno.dashboard.access import AccessTokens
    from modeldyno.dashboard.guard import BrowserSession
    from modeldyno.stores.interface import Store

_LARGEST_FORM = 64_000
"""Bytes of a form."""
_LARGEST_FILE = 1 << 30
"""Bytes of a form with a model in it."""
_MAKERS = 2
"""Pages that are made at a time: more of them only take the interpreter from each other."""
_LOG = logging.getLogger("modeldyno.dashboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRoute:
    """A page: its path, the function that makes it, and what its query may hold."""

    path: str
    page: Callable[[PageRequest], DashboardPage]
    query: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.page.__doc__ or "").partition("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRoute:
    """What a form does: its path, and the function that does it and returns the page to show then."""

    path: str
    write: Callable[[PageRequest], str]
    sends_file: bool = False
    """Whether a file belongs to the form."""


PAGES = (
    PageRoute(path="/", page=home_page.home),
    PageRoute(
        path="/models", page=registry_pages.models, query=("text", "framework", "task", "show", "before")
    ),
    PageRoute(path="/models/{name}", page=registry_pages.model),
    PageRoute(
        path="/models/{name}/answer",
        page=registry_pages.answer,
        query=("p99", "require", "demand", "price", "on"),
    ),
    PageRoute(path="/models/{name}/{version}", page=registry_pages.version),
    PageRoute(
        path="/results", page=document_pages.results, query=("name", "tag", "where", "columns", "before")
    ),
    PageRoute(path="/results/{id}", page=document_pages.result),
    PageRoute(path="/results/{id}/network", page=network_page.network, query=("in",)),
    PageRoute(path="/studies", page=document_pages.studies, query=("name", "before")),
    PageRoute(path="/studies/{id}", page=document_pages.study),
    PageRoute(path="/comparisons", page=document_pages.comparisons, query=("name", "before")),
    PageRoute(path="/comparisons/{id}", page=document_pages.comparison),
    PageRoute(path="/loads", page=document_pages.loads, query=("name", "before")),
    PageRoute(path="/loads/{id}", page=document_pages.load),
    PageRoute(path="/conversions", page=document_pages.conversions, query=("name", "before")),
    PageRoute(path="/conversions/{id}", page=document_pages.conversion),
    PageRoute(path="/compare", page=document_pages.beside, query=("with",)),
    PageRoute(path="/trends", page=trend_pages.trends, query=("name", "metric")),
    PageRoute(path="/tasks", page=registry_pages.tasks, query=("model", "all", "before")),
    PageRoute(path="/targets", page=device_pages.targets),
    PageRoute(path="/alerts", page=alerts.alerts),
    PageRoute(path="/events", page=registry_pages.events, query=("of", "before")),
    PageRoute(path="/settings", page=registry_pages.settings),
)
WRITES = (
    WriteRoute(path="/results/{id}/tags", write=document_pages.change_tags),
    WriteRoute(path="/models/{name}/aliases", write=registry_pages.change_alias),
    WriteRoute(path="/tasks", write=registry_pages.change_tasks),
    WriteRoute(path="/models", write=registry_writes.register_file, sends_file=True),
    WriteRoute(path="/models/{name}/compare", write=registry_writes.compare_versions),
    WriteRoute(path="/models/{name}/{version}/measure", write=registry_writes.measure_version),
    WriteRoute(path="/results/{id}/again", write=registry_writes.measure_again),
    WriteRoute(path="/compare", write=registry_writes.compare_results),
)
MOVED = {
    "/overview": "/",
    "/home": "/",
    "/measurements": "/results",
    "/sweeps": "/studies",
    "/queue": "/tasks",
}
"""Addresses by the names of rooms and tabs, and where their pages are."""
WITH_CHARTS = tuple(route for route in PAGES if route.path.endswith("/{id}"))
"""Pages whose charts have addresses of their own."""
_NO_LISTS = {"/", "/alerts", "/compare", "/settings"}
AS_CSV = tuple(route for route in PAGES if "{" not in route.path and route.path not in _NO_LISTS)
"""Lists that can be had for a spreadsheet."""
QUERY = {
    "all": "Any text: tasks that have ended, too.",
    "before": "Where the page before ended, as its `next` says.",
    "columns": "Columns of the list, such as `created, latency.p99, throughput`.",
    "demand": "Requests per second to serve, such as 200/s.",
    "framework": "Only models of this framework.",
    "in": "Path of the module that is opened; empty for the whole network.",
    "metric": "What the history is of, such as latency.p99.",
    "model": "Only tasks of this model or version.",
    "name": "Only documents of this model.",
    "of": "Only events of this model or version.",
    "on": "Only figures of this target.",
    "p99": "Milliseconds within which 99 % of the calls must surely be answered, such as 20.",
    "price": "Price of a replica, such as 1.2/h.",
    "require": "A bound, such as `latency.p99 <= 20ms`; may be repeated.",
    "show": "A column of the matrix: p50, p99 or rate; may be repeated.",
    "tag": "Only results with this tag.",
    "task": "Only models with this task.",
    "text": "Only models whose name contains this.",
    "where": "Conditions, such as `latency.p99 < 20ms and batch_size = 8`.",
    "with": "Id, tag or name of a document; two to five of them.",
}
"""What each word of a query means."""
_REPEATED = {"require", "show", "with"}


def make_app(
    store: Store,
    port: int,
    *,
    ending: Callable[[], bool] = lambda: False,
    hosts: tuple[str, ...] = (),
    tokens: AccessTokens | None = None,
    moment: float = MOMENT,
) -> FastAPI:
    """Make the application for an open store.

    Args:
        store: what it reads, and what its forms write.
        port: the port at which browsers ask for it.
        ending: whether the server is about to end; streams end then.
        hosts: names besides those of loopback that it answers to, perhaps with a port.
        tokens: one of these has to be given; None asks for none.
        moment: seconds for which a page that was made is shown to others as well.
    """
    app = FastAPI(
        title="ModelDyno",
        description=(
            "What the store has: each operation that reads is the JSON twin of a page. Those that change "
            "something need an operator's token, so a dashboard that was started with a token file."
        ),
        version="1",
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    watch = ChangeWatch(store=store)
    search = RegressionSearch(store=store, mark=watch.store_mark)
    watch.version = lambda: search.version
    sessions = Sessions(port, tokens)
    answers = _Answers(PageRequest(store=store, regressions=search.regressions), watch, sessions, moment)

    def stream(request: Request) -> Response:
        return change_stream(request, watch, ending)

    for route in PAGES:
        _add_page(app, route, answers)
    for operation in API_WRITES:
        _add_api_write(app, operation, answers)
    for route in WITH_CHARTS:
        for suffix in chart_pictures.KINDS:
            path = f"{route.path}/chart.{suffix}"
            picture = partial(answers.picture, route, suffix)
            app.add_route(path, picture, methods=["GET"], include_in_schema=False)
    for route in AS_CSV:
        path = f"{route.path}.csv"
        app.add_route(path, partial(answers.table, route), methods=["GET"], include_in_schema=False)
    for writing in WRITES:
        app.add_route(writing.path, partial(answers.form, writing), methods=["POST"], include_in_schema=False)
    for path, answer in ((LOGIN, answers.log_in), (_LOGOUT, answers.log_out)):
        app.add_route(path, answer, methods=["POST"], include_in_schema=False)
    app.add_route(LOGIN, answers.login, methods=["GET"], include_in_schema=False)
    app.add_route("/static/{name}", _static, methods=["GET"], include_in_schema=False)
    for old, new in MOVED.items():
        app.add_route(old, partial(_moved, new), methods=["GET"], include_in_schema=False)
    app.add_route("/changes", stream, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(HTTPException, answers.missing)
    app.add_exception_handler(Exception, answers.failed)
    app.add_middleware(Compression)
    app.add_middleware(Guard, port=port, sessions=sessions, hosts=hosts)
    bearer = {"token": {"type": "http", "scheme": "bearer"}}
    # FastAPI keeps what it has made.
    app.openapi()["components"] = {"schemas": schemas()[1], "securitySchemes": bearer}
    return app


class _Answers:
    """Answers requests by the functions of the routes."""

    def __init__(self, base: PageRequest, watch: ChangeWatch, sessions: Sessions, moment: float) -> None:
        self._base, self._watch, self._sessions = base, watch, sessions
        self._makers = CapacityLimiter(_MAKERS)
        self._shared: SharedPages[_Written] = SharedPages(mark=lambda: watch.known, moment=moment)

    async def page(self, route: PageRoute, request: Request) -> Response:
        """Answer with a page; the same one to several who ask for it at about the same time."""
        session, new = self._session_or_new(request)
        url, page_request = request.url, _read_request(self._base, request)

        def write() -> _Written:
            mark = self._watch.mark()  # before the page is made: what is written meanwhile is followed
            page = _made(route.page, page_request)
            return _Written(page.status, self._write(page, url, session, mark))

        key = url.path, url.query, None if session is None else session.role
        written = await self._shared.page(
            key,
            lambda: to_thread.run_sync(write, limiter=self._makers),
            newest="x-follows" in request.headers,
        )
        return self._answer(written, session, new=new)

    def twin(self, route: PageRoute, request: Request) -> Response:
        """Answer with the JSON of a page."""
        return _as_json(_made(route.page, _read_request(self._base, request)))

    def picture(self, route: PageRoute, suffix: str, request: Request) -> Response:
        """Answer with a chart of a page as a picture: the one that the query names, or the first."""
        page_request = _read_request(self._base, request)
        page = _made(route.page, page_request)
        if page.status == _FOUND:
            try:
                drawn = chart_pictures.draw(page, suffix, page_request.text("chart"))
                return Response(drawn, headers=_FRESH, media_type=chart_pictures.KINDS[suffix])
            except ModelDynoError as error:
                page = _problem(_status(error, 404), str(error))
        return self._show(page, request)

    def table(self, route: PageRoute, request: Request) -> Response:
        """Answer with the first table of a page, for a spreadsheet."""
        page = _made(route.page, _read_request(self._base, request))
        writer = plugins.reporter("csv")
        listed = (part for part in page.parts if isinstance(part, PageBlocks) and part.listed)
        blocks = (block for part in listed for block in part.blocks)
        tables = [block for block in blocks if isinstance(block, Table)]
        if page.status != _FOUND:
            return self._show(page, request)
        text = writer.table(tables[0]) if tables else ""
        name = f'attachment; filename="{route.path.strip("/")}.csv"'
        return Response(text, headers={**_FRESH, "content-disposition": name}, media_type="text/csv")

    async def form(self, route: WriteRoute, request: Request) -> Response:
        """Do what a form asks for, and lead to the page that shows it."""
        page_request = await self._sent(request, sends_file=route.sends_file)
        if isinstance(page_request, Response):
            return page_request
        try:
            where = await run_in_threadpool(route.write, page_request)
        except ModelDynoError as error:
            return self._show(_problem(_status(error, 400), str(error)), request)
        finally:
            self._shared.forget()
            if page_request.file is not None:
                page_request.file.content.close()
        return RedirectResponse(where, 303)

    async def _sent(self, request: Request, *, sends_file: bool = False) -> PageRequest | Response:
        """Read a form that was sent by somebody who may; else answer why not."""
        session = self._session(request)
        file = None
        sent = request.headers.get("content-type", "").startswith("multipart/")
        if sent and sends_file and session is not None and session.role is AccessRole.OPERATOR:
            fields, file = await _form_with_file(request)
        else:
            fields = await _form(request)
        if fields is None:
            return self._show(_problem(413, "What was sent is no form, or too long."), request)
        page_request = _read_request(self._base, request, fields, file)
        if not self._sessions.holds(session, page_request.form_value("token")):
            text = "This form has expired; go back and reload the page."
            return self._show(_problem(403, text), request)
        if session is not None and session.role is not AccessRole.OPERATOR and request.url.path != _LOGOUT:
            return self._show(_problem(403, _READER), request)
        return page_request

    async def api_write(self, operation: ApiWrite, request: Request) -> Response:
        """Do an operation of the API for who has an operator's token."""
        refusal = self._write_refusal(request)
        if refusal is not None:
            return refusal
        fields, file = await _form_with_file(request) if operation.sends_file else ((), None)
        body = b"" if operation.sends_file else await _read_body(request)
        if fields is None or body is None:
            kind = "multipart/form-data with a file" if operation.sends_file else "JSON"
            return _as_json(_problem(413, f"What was sent is not {kind}, or too long."))
        page_request = replace(_read_request(self._base, request, fields, file), body=body)
        try:
            done = await run_in_threadpool(operation.write, page_request)
        except ModelDynoError as error:
            missing = isinstance(error, NoSuchVersion)
            return _as_json(_problem(404 if missing else _status(error, 400), str(error)))
        finally:
            self._shared.forget()
            if file is not None:
                file.content.close()
        return Response(codec.encode_document(done), operation.status, _FRESH, "application/json")

    def _write_refusal(self, request: Request) -> Response | None:
        """Say why who asks the API may not change anything; None if they may."""
        if not self._sessions.asks_for_token:
            return _as_json(_problem(403, _READ_ONLY))
        role = self._sessions.role_sent(request.headers.get("authorization", ""))
        if role is None:  # logged in as a browser: no form's token comes with it
            answer = _as_json(_problem(401, TOKEN_NEEDED))
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        return None if role is AccessRole.OPERATOR else _as_json(_problem(403, _READER))

    def login(self, request: Request) -> Response:
        """Show the form for a token, or lead on whoever has given one."""
        following = _page_address(request.query_params.get("next", ""))
        if self._session(request) is not None:
            return RedirectResponse(following, 303)
        answer = self._show(_login_page(following), request)
        if request.headers.get("sec-fetch-site") == "cross-site":
            # From a link of another site no cookie is sent; from this page, it is.
            answer.headers["refresh"] = "0"
        return answer

    async def log_in(self, request: Request) -> Response:
        """Take a token, and lead to the page that was asked for."""
        fields = dict(await _form(request) or ())
        following = _page_address(fields.get("next", ""))
        role = self._sessions.role_of(fields.get("access", "").strip())
        if role is None:
            await asyncio.sleep(_PAUSE)
            return self._show(_login_page(following, "This token is not one of its tokens."), request)
        answer = RedirectResponse(following, 303)
        self._give_cookie(answer, self._sessions.new(role))
        return answer

    async def log_out(self, request: Request) -> Response:
        """Forget a browser."""
        page_request = await self._sent(request)
        if isinstance(page_request, Response):
            return page_request
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(self._sessions.cookie, httponly=True, samesite="strict", path="/")
        return answer

    async def missing(self, request: Request, error: Exception) -> Response:
        """Answer where there is no page."""
        code = error.status_code if isinstance(error, HTTPException) else 404
        says = {405: "This page cannot be asked for in that way."}.get(code, "There is no such page.")
        return self._tell(_problem(code, says), request)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answer where a page has failed."""
        _LOG.error("%s %s: %r", request.method, request.url.path, error)
        return self._tell(_problem(500, f"This page failed: {type(error).__name__}. It is a bug."), request)

    def _tell(self, page: DashboardPage, request: Request) -> Response:
        return _as_json(page) if request.url.path.startswith(API) else self._show(page, request)

    def _session(self, request: Request) -> BrowserSession | None:
        return self._sessions.of(request.headers.get("cookie", ""))

    def _session_or_new(self, request: Request) -> tuple[BrowserSession | None, bool]:
        """Return the session of a browser, and whether it is new: without tokens, each has one."""
        session = self._session(request)
        if session is None and not self._sessions.asks_for_token:
            return self._sessions.new(), True
        return session, False

    def _show(self, page: DashboardPage, request: Request) -> Response:
        session, new = self._session_or_new(request)
        written = _Written(page.status, self._write(page, request.url, session, ""))
        return self._answer(written, session, new=new)

    def _write(self, page: DashboardPage, url: URL, session: BrowserSession | None, mark: str) -> str:
        return render_page(
            page,
            path=url.path,
            query=url.query,
            token=_TOKEN,
            mark=mark,
            role=session.role if session is not None and self._sessions.asks_for_token else None,
            writes=session is None or session.role is AccessRole.OPERATOR,
            as_csv=any(route.path == url.path for route in AS_CSV),
        )

    def _answer(self, written: _Written, session: BrowserSession | None, *, new: bool) -> Response:
        token = "" if session is None else self._sessions.token(session)
        answer = HTMLResponse(written.text.replace(_TOKEN, token), written.status, _FRESH)
        if session is not None and new:
            self._give_cookie(answer, session)
        return answer

    def _give_cookie(self, answer: Response, session: BrowserSession) -> None:
        value = self._sessions.cookie_value(session)
        answer.set_cookie(self._sessions.cookie, value, httponly=True, samesite="strict", path="/")


class _Written(NamedTuple):
    """A page as HTML, with `_TOKEN` for the token of who sees it."""

    status: int
    text: str


_TOKEN = secrets.token_hex(32)
"""Stands for the token of a form; nobody can guess it, so it is nowhere else on a page."""
_LOGOUT = "/logout"
_READER = "A reader changes nothing; use an operator's token."
_READ_ONLY = (
    "Refused: without tokens, the API only reads. Start the dashboard with modeldyno ui --token-file FILE, "
    "and send the operator's token of that file as Authorization: Bearer TOKEN."
)
_PAUSE = 1.0
"""Seconds that a wrong token costs."""


def _login_page(following: str, wrong: str = "") -> DashboardPage:
    """Make the form for a token; it is sent without one, as the browser has no session yet."""
    form = PageForm(
        id="login",
        action=LOGIN,
        fields=(
            FormField(name="access", label="Token", secret=True),
            FormField(name="next", label="", value=following, hidden=True),
        ),
        buttons=(("", "Log in"),),
        writes=True,
    )
    says = wrong or "This dashboard asks for a token; it is in the file that it was started with."
    return DashboardPage(
        title="Log in",
        room="",
        parts=(PageText(text=says), form),
        data={"error": says},
        status=403 if wrong else 200,
    )


def _page_address(text: str) -> str:
    """Return the address of a page of ours, or the first page for anything else."""
    path = text.partition("?")[0]
    is_page = any(compile_path(route.path)[0].fullmatch(path) for route in PAGES)
    return text if is_page and text.isprintable() else "/"


_FOUND = 200
_FRESH = {"cache-control": "no-store"}
_KEPT = "public, max-age=31536000, immutable"
_ASKED_AGAIN = "no-cache"
"""Of an address that does not name what is there, so that a browser asks whether it is still the same."""


def _as_json(page: DashboardPage) -> Response:
    data = page.data if isinstance(page.data, bytes) else codec.encode_document(page.data)
    return Response(data, page.status, _FRESH, "application/json")


def _static(request: Request) -> Response:
    """Answer with a file; its address has its digest, so a browser keeps it for good."""
    name = request.path_params["name"]
    file = static_files().get(name)
    if file is None:
        raise HTTPException(404)
    packed = takes_gzip(", ".join(request.headers.getlist("accept-encoding")))
    tag = f'"{file.digest}{"-gzip" if packed else ""}"'  # the bytes are others, so the tag is
    headers = {
        "cache-control": _KEPT if request.url.query == file.digest else _ASKED_AGAIN,
        "vary": "Accept-Encoding",
        "etag": tag,
    }
    known = (one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(","))
    if any(one in {tag, "*"} for one in known):
        return Response(status_code=304, headers=headers)
    if packed:
        headers["content-encoding"] = "gzip"
    content = compressed_file(name) if packed else file.content
    return Response(content, headers=headers, media_type=file.kind)


def _moved(address: str, request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{address}{query}", 308)


def _add_page(app: FastAPI, route: PageRoute, answers: _Answers) -> None:
    """Add a page and its JSON twin."""
    schema = schemas()[0].get(route.path, {})

    def twin(request: Request) -> Response:
        return answers.twin(route, request)

    app.add_route(route.path, partial(answers.page, route), methods=["GET"], include_in_schema=False)
    app.add_api_route(
        API + ("/home" if route.path == "/" else route.path),
        twin,
        methods=["GET"],
        summary=route.summary,
        name=route.page.__name__,
        operation_id=route.page.__name__,
        response_class=Response,
        responses={200: {"description": "What the page shows.", "content": _json_of(schema)}, **_PROBLEMS},
        openapi_extra={"parameters": [*_path_parameters(route.path), *_query_parameters(route)]},
    )


def _add_api_write(app: FastAPI, operation: ApiWrite, answers: _Answers) -> None:
    """Add an operation of the API."""

    async def write(request: Request) -> Response:
        return await answers.api_write(operation, request)

    described: dict[str, Any] = {
        "parameters": list(_path_parameters(operation.path)), "security": [{"token": []}]
    }  # fmt: skip
    if operation.takes is not None:
        kind = "multipart/form-data" if operation.sends_file else "application/json"
        schema = schemas()[0][operation.takes]
        described["requestBody"] = {"required": operation.sends_file, "content": {kind: {"schema": schema}}}
    done = {"description": "It is done.", "content": _json_of(schemas()[0][operation.gives])}
    app.add_api_route(
        API + operation.path,
        write,
        methods=[operation.method],
        summary=operation.summary,
        name=operation.write.__name__,
        operation_id=operation.write.__name__,
        status_code=operation.status,
        response_class=Response,
        responses={operation.status: done, **_PROBLEMS, **_REFUSALS},
        openapi_extra=described,
    )


def _json_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


_PROBLEM = _json_of({"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]})
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "Something that was sent is wrong; the sentence says what.", "content": _PROBLEM},
    404: {"description": "There is none of that name.", "content": _PROBLEM},
    503: {"description": "The store cannot be read.", "content": _PROBLEM},
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"description": "There is no token, or it is wrong.", "content": _PROBLEM},
    403: {
        "description": "The token is a reader's, or the server has none and only reads.",
        "content": _PROBLEM,
    },
    413: {"description": "The body is of another kind, or too long.", "content": _PROBLEM},
}


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    """Describe the parts of a path."""
    for part in path.split("/"):
        if part.startswith("{"):
            yield {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(route: PageRoute) -> Iterator[dict[str, Any]]:
    """Describe the words of the query."""
    for word in route.query:
        one = {"type": "string", "maxLength": 1000}
        schema = {"type": "array", "items": one} if word in _REPEATED else one
        yield {"name": word, "in": "query", "required": False, "description": QUERY[word], "schema": schema}


def _read_request(
    base: PageRequest, request: Request, form: tuple[tuple[str, str], ...] = (), file: SentFile | None = None
) -> PageRequest:
    """Take what is asked for out of a request; no database takes a null character."""
    return replace(
        base,
        path={name: _plain(str(value)) for name, value in request.path_params.items()},
        query=tuple((name, _plain(value)) for name, value in request.query_params.multi_items()),
        form=form,
        file=file,
    )


def _plain(text: str) -> str:
    return text.replace("\0", "\ufffd")


async def _form(request: Request) -> tuple[tuple[str, str], ...] | None:
    """Read the fields of a form; None if it is none, or too long."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = await _read_body(request)
    if body is None:
        return None
    fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    return tuple((name, _plain(value)) for name, value in fields)


async def _read_body(request: Request) -> bytes | None:
    """Read what was sent; None if it is longer than a form."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            return None
    return body


async def _form_with_file(request: Request) -> tuple[tuple[tuple[str, str], ...] | None, SentFile | None]:
    """Read the fields of a form and its file, which is kept on disk; None if it is none, or too long."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        return None, None

    async def bounded() -> AsyncGenerator[bytes]:
        length = 0
        async for chunk in request.stream():
            length += len(chunk)
            if length > _LARGEST_FILE:
                raise MultiPartException("too long")
            yield chunk

    try:
        parser = MultiPartParser(
            request.headers, bounded(), max_files=1, max_fields=10, max_part_size=_LARGEST_FORM
        )
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError):  # the last two: without a boundary
        return None, None
    files = [value for value in form.values() if isinstance(value, UploadFile)]
    fields = tuple((name, _plain(value)) for name, value in form.multi_items() if isinstance(value, str))
    file = SentFile(name=_plain(files[0].filename or ""), content=files[0].file) if files else None
    return fields, file


def _made(page: Callable[[PageRequest], DashboardPage], page_request: PageRequest) -> DashboardPage:
    """Make a page, or one that says in a sentence what is wrong."""
    try:
        return page(page_request)
    except ModelDynoError as error:
        return _problem(_status(error, 404), str(error))


def page_at(store: Store, target: str) -> DashboardPage | None:
    """Make the page at an address; None if there is no such page."""
    path, _, query = target.partition("?")
    for route in PAGES:
        pattern, _, _ = compile_path(route.path)
        if match := pattern.fullmatch(path):
            parts = {name: unquote(text) for name, text in match.groupdict().items()}
            return _made(route.page, PageRequest(store=store, path=parts, query=tuple(parse_qsl(query))))
    return None


def _status(error: ModelDynoError, otherwise: int) -> int:
    return 503 if isinstance(error, StoreError) else otherwise if isinstance(error, RequestError) else 400


def _problem(status: int, text: str) -> DashboardPage:
    titles = {404: "Not found", 403: "Refused", 500: "A bug", 503: "The store cannot be read"}
    home = PageLinks(label="Go on", links=(PageLink(text="Back to the first page", address="/"),))
    return DashboardPage(
        title=titles.get(status, "That cannot be done"),
        room="",
        parts=(PageText(text=text), home),
        data={"error": text},
        status=status,
    )
