"""The server of pages, on the loopback."""

import base64
import contextlib
import gzip
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import Mock, patch

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings

from sweeper.commands import view
from sweeper.definition import registry
from sweeper.report.heatmaps import pivot
from sweeper.report.page import aggregates, document
from sweeper.report.page.contents import Contents
from sweeper.storage.files import Files
from sweeper.storage.load import load
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.report.page.browsers import Watched, browser, tab
from tests.sweeper.report.page.stored import NAME, SWEEP, fill


@pytest.fixture(autouse=True)
def small_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "compressed_library", lambda: gzip.compress(b"(() => {})();", mtime=0))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return fill(tmp_path / "store")


@pytest.fixture
def server(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[view.Server]:
    monkeypatch.setattr(view, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(view, "FRESH_SHARE", 0.0)
    with view._server(view.Site(Files(store.files.uri)), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: view.Server, path: str, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
    """Status, content and headers of an answer."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    ) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


def get(server: view.Server, path: str, host: str = "127.0.0.1", version: str | None = None) -> tuple[int, bytes]:
    """What a tab gets that has opened the printed link."""
    known = {} if version is None else {"If-None-Match": f'"{version}"'}
    return ask(server, path, Host=host, Authorization=f"Bearer {server.token}", **known)[:2]


@pytest.mark.slow
def test_pages_and_newer_data(server: view.Server, store: Store) -> None:
    assert b'<a href="grid.html">grid</a>' in get(server, "/")[1]
    assert b'data-live="live"' in get(server, "/grid.html")[1]
    before = json.loads(get(server, "/grid.json")[1])
    assert json.loads(get(server, "/grid.json")[1]) == before
    store.write_history(NAME, "c1", [("training", 9, "loss", 0.01)])
    after = json.loads(get(server, "/grid.json")[1])
    assert after["version"] != before["version"] and store.files.list("reports") == ["grid.views"]


@pytest.mark.slow
def test_data_that_a_page_has_are_not_sent_again(
    server: view.Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed = Mock(wraps=document._compressed)
    monkeypatch.setattr(document, "_compressed", compressed)
    version = json.loads(get(server, "/grid.json")[1])["version"]
    assert get(server, "/grid.json", version=version) == (304, b"")
    assert get(server, "/grid.json")[0] == get(server, "/grid.json", version="other")[0] == 200
    assert compressed.call_count == 2, "the same data are compressed once"
    store.write_history(NAME, "c1", [("training", 9, "loss", 0.01)])
    status, newer = get(server, "/grid.json", version=version)
    assert status == 200 and json.loads(newer)["version"] != version


def test_a_sweep_that_is_slow_to_read_does_not_keep_others_waiting(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "store", name="slow")
    site, begun, other_read = view.Site(store.files), threading.Event(), threading.Event()
    read = view.collect

    def collect(files: Files, name: str, *, every: bool) -> Contents:
        if name == "slow":
            begun.set()
            assert other_read.wait(20), "the other sweep waits"
        return read(files, name, every=every)

    monkeypatch.setattr(view, "collect", collect)
    thread = threading.Thread(target=site.answer, args=("/slow.json",))
    thread.start()
    assert begun.wait(20) and site.answer("/grid.json")
    other_read.set()
    thread.join()


def test_a_sweep_that_does_not_ship_has_its_figures(server: view.Server) -> None:
    assert NAME not in registry.names()
    report = json.loads(gzip.decompress(base64.b64decode(json.loads(get(server, "/grid.json")[1])["report"])))
    assert (
        report["about"] == SWEEP.about
        and report["presets"]["paper"]["heatmaps"]
        and report["requests"][0]["figures"]["tables"]
    )


@pytest.mark.parametrize(
    "path", ["/other.html", "/grid", "/grid.parquet", "/../grid.html", "/%2e%2e/trials", "/grid.html/x"]
)
def test_there_is_nothing_else(server: view.Server, path: str) -> None:
    assert get(server, path)[0] == 404


def test_foreign_names_of_this_machine_are_refused(server: view.Server) -> None:
    assert get(server, "/grid.json", host="attacker.example")[0] == 403
    assert get(server, "/grid.json", host="localhost:1")[0] == 200


def test_every_answer_needs_the_token_of_the_printed_link(server: view.Server, store: Store) -> None:
    with view._server(view.Site(store.files), 0) as other:
        assert other.token != server.token and len(server.token) >= 40
        wrong = [
            "",
            "Bearer",
            f"Bearer {other.token}",
            f"Bearer {server.token[:-1]}",
            f"Basic {server.token}",
            "Bearer \xff",
        ]
    page = document.view_document()[0]
    for path in ("/", "/grid.html", "/grid.json", "/x", f"/grid.json?token={server.token}"):
        for typed in wrong:
            status, content, headers = ask(server, path, Authorization=typed, Cookie=f"sweeper={server.token}")
            is_page = path.endswith(("/", ".html")) and not typed.startswith("Bearer")
            assert (status, content) == ((200, page) if is_page else (403, view.NO_TOKEN))
            assert "Set-Cookie" not in headers
    assert server.token.encode() not in page and store.files.uri.encode() not in page, "it has no data"
    assert ask(server, "/", Host="attacker.example")[0] == 403
    assert server.link == f"http://127.0.0.1:{server.server_address[1]}/#token={server.token}"
    assert get(server, "/grid.json")[0] == 200


@for_each(("path", "known"), [(path, known) for path in ("/", "/grid.json", "/x") for known in (True, False)])
def test_no_answer_may_be_framed_or_read_by_another_page(server: view.Server, path: str, known: bool) -> None:
    typed = {"Authorization": f"Bearer {server.token}"} if known else {}
    _, _, headers = ask(server, path, **typed)
    rules = headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'none'"} <= {*rules} and "unsafe" not in " ".join(rules)
    assert headers["X-Frame-Options"] == "DENY" and headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert not {name for name in headers if name.startswith("Access-Control")}


def answer_to(server: view.Server, request: bytes) -> str:
    with socket.create_connection(("127.0.0.1", server.server_address[1]), 20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode("latin-1")


@for_each(
    ("status", "request_line", "fields"),
    [
        (501, "POST / HTTP/1.1", ["Host: localhost"]),
        (431, "GET / HTTP/1.1", [f"X{index}: x" for index in range(200)]),
        (400, "GET", []),
        (400, "GET / HTTP/x", []),
        (505, "GET / HTTP/9.0", []),
        (400, "GET / HTTP/1.1", ["Host: 127.0.0.1", "Host: localhost"]),
        *((400, "GET / HTTP/1.1", [f"Host: {host}"]) for host in ("evil@127.0.0.1", "127.0.0.1:99999999", "[", "a/b")),
        *((400, "GET / HTTP/1.1", [f"Host: {host}"]) for host in ("localhost:x", "localhost:65536", "127.0.0.1:1:1")),
        *((403, "GET / HTTP/1.1", [f"Host: {host}"]) for host in ("attacker.example", "", "[::1]:80")),
        *((200, "GET / HTTP/1.1", [f"Host: {host}"]) for host in ("127.0.0.1", "LOCALHOST:65535")),
    ],
)
def test_every_answer_has_the_headers_of_security_once(
    server: view.Server, status: int, request_line: str, fields: list[str]
) -> None:
    head, _, _ = answer_to(server, "\r\n".join([request_line, *fields, "", ""]).encode()).partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    assert first.split()[1] == str(status)
    names = [line.partition(":")[0] for line in lines]
    assert {name: names.count(name) for name in view.SECURITY} == dict.fromkeys(view.SECURITY, 1)


HEADS = st.lists(
    st.sampled_from(
        [
            *("GET ", "HEAD ", "POST ", "/", "//", "/grid.html", "/grid.json", "%00", "%ff", "%2e%2e", "?", "#", "*"),
            *(" HTTP/1.1", " HTTP/9", "\r\n", "Host: ", "127.0.0.1", "[", "[::1", "]", ":x", "@", "\x00", "\xff", " "),
            *("Authorization: ", "Bearer ", "TOKEN", "If-None-Match: ", '"', "Content-Length: -1", "http://[x"),
        ]
    ),
    max_size=20,
).map("".join)
"""Heads of requests."""


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head=HEADS)
@example("GET / HTTP/1.1\r\nHost: [x")
@example("GET //[x HTTP/1.1\r\nHost: 127.0.0.1")
@example("GET /%00.html HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer TOKEN")
def test_no_request_gives_a_traceback(server: view.Server, head: str) -> None:
    errors = list[str]()
    with (
        patch.object(server, "handle_error", lambda *_: errors.append(traceback.format_exc())),
        socket.create_connection(("127.0.0.1", server.server_address[1]), 20) as connection,
    ):
        connection.sendall(head.replace("TOKEN", server.token).encode("latin-1") + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1 << 16):
                pass
    assert errors == []


def test_silent_connections_give_way_and_are_closed(server: view.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_CONNECTIONS", 3)
    address = ("127.0.0.1", server.server_address[1])
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(3)]
        assert get(server, "/")[0] == 200
        assert silent[0].recv(1) == b"", "the oldest is closed for one more"
        silent[1].sendall(b"GET / HTTP/1.1\r\nHost: ")  # and never more
        monkeypatch.setattr(view, "REQUEST_SECONDS", -1.0)
        hasty = stack.enter_context(socket.create_connection(address, 20))
        assert hasty.recv(1) == b"", "its request has not come in time"
        monkeypatch.undo()
        assert get(server, "/")[0] == 200 and len(server._open) <= 3


def test_a_store_that_vanishes_is_no_empty_list(server: view.Server, store: Store, tmp_path: Path) -> None:
    assert get(server, "/")[0] == get(server, "/grid.json")[0] == 200
    (tmp_path / "store").rename(tmp_path / "moved")
    for path in ("/", "/grid.html", "/grid.json"):
        status, text = get(server, path)
        assert status == 503 and text.decode().startswith(f"store {tmp_path / 'store'} has vanished")
        assert text.count(b"\n") == 1
    (tmp_path / "store").mkdir()  # as when its file system is unmounted
    assert get(server, "/")[0] == 503
    (tmp_path / "store").rmdir()
    (tmp_path / "moved").rename(tmp_path / "store")
    assert get(server, "/grid.json")[0] == 200


def test_an_empty_store_is_an_empty_list(tmp_path: Path) -> None:
    site = view.Site(Files(tmp_path))
    answer = site.answer("/")
    assert answer and b"There are no sweeps yet" in answer.content and site.answer("/grid.json") is None


def test_a_store_that_fails_is_an_answer_and_not_the_end(server: view.Server, store: Store, tmp_path: Path) -> None:
    assert get(server, "/grid.json")[0] == 200
    pq.write_table(pa.table({"mine": [1]}), tmp_path / f"store/trials/sweep={NAME}/no.parquet")
    status, text = get(server, "/grid.json")
    assert status == 503 and text.decode().startswith("store ") and text.count(b"\n") == 1
    (tmp_path / f"store/trials/sweep={NAME}/no.parquet").unlink()
    assert get(server, "/grid.json")[0] == 200


def test_wrong_requests_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, reason in {
            (str(tmp_path / "absent"),): "there is no such folder",
            (str(tmp_path / "file"),): "must be a folder, but is a file",
            ("gopher://host/x",): "cannot be opened",
            (str(tmp_path), "--port", port): f"port {port} of 127.0.0.1 cannot be used: Address already in use",
            (str(tmp_path), "--port", "70000"): "port 70000 of 127.0.0.1 cannot be used",
            (str(tmp_path), "--port", "x"): "--port",
            (str(tmp_path), "other"): "unrecognized arguments: other",
        }.items():
            assert view.main(arguments) == 2, arguments
            error = capsys.readouterr().err
            assert error.startswith("error: ") and error.count("\n") == 1 and reason in error, error


@pytest.mark.slow
def test_ctrl_c_ends_it(store: Store) -> None:
    command = [sys.executable, "-m", "sweeper", "view", str(store.files.local_folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert re.search(r"is shown at http://127\.0\.0\.1:\d+/#token=[\w-]{43}; Ctrl-C", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors == ""


@pytest.fixture
def large() -> Iterator[None]:
    """A page has fewer trials than the sweep."""
    with patch.object(aggregates, "MAX_TRIALS", 10), patch.object(aggregates, "KEPT_TRIALS", 4):
        yield


@pytest.fixture
def live(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """The page of the sweep in a browser, from a server."""
    monkeypatch.undo()  # the real library of charts
    monkeypatch.setattr(view, "FRESH_SECONDS", 0.0)
    with (
        view._server(view.Site(Files(store.files.uri)), 0) as server,
        browser() as chromium,
        tab(chromium, offline=False) as page,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        page.tab.set_content(f'<a href="{server.link}">link</a>')  # a foreign page, as a terminal in a browser is
        page.tab.get_by_role("link", name="link").click()
        page.tab.wait_for_url(address)
        page.tab.get_by_role("link", name=NAME).click()
        page.tab.wait_for_selector("#heatmap path[role=button]")
        yield page
        assert page.complaints == [] and all(url.startswith((address, "data:")) for url in page.requests)
        server.shutdown()


def report_epoch(page: Watched, store: Store, epoch: int) -> None:
    """Report one epoch more of a trial, and wait until the page shows it."""
    store.write_history(NAME, "c1", [("training", epoch, "loss", 0.01)])
    shown = f"() => document.querySelector('#training p').textContent.includes('Last epoch {epoch}.')"
    page.tab.wait_for_function(shown)


@pytest.mark.slow
def test_links_and_reloads_keep_the_token_out_of_the_address(live: Watched) -> None:
    page = live
    assert page.tab.evaluate("document.cookie") == "" and len(page.tab.evaluate("sessionStorage.token")) >= 40
    page.tab.reload()
    page.tab.wait_for_selector("#heatmap path[role=button]")
    page.tab.go_back()
    page.tab.get_by_role("link", name=NAME).wait_for()
    assert all(url.partition("#")[0] == url or url == page.requests[0] for url in page.requests)
    assert "token" not in page.tab.url and page.tab.title() == "Sweeps"
    page.tab.evaluate("sessionStorage.clear()")
    page.tab.reload()
    page.tab.get_by_text("open the link that sweeper view has printed").wait_for()
    page.complaints.clear()  # of the answer 403


@pytest.mark.slow
def test_newer_data_keep_what_was_chosen(live: Watched, store: Store) -> None:
    page = live
    page.tab.get_by_label("filter").fill("status=finished")
    page.tab.locator("#heatmap path[role=button]").nth(4).click()
    chosen = page.tab.inner_text("#heatmap [role=status]")
    assert "Last epoch 3." in page.tab.inner_text("#training p")
    report_epoch(page, store, 9)
    page.tab.wait_for_function(
        "(text) => document.querySelector('#heatmap [role=status]').textContent === text", arg=chosen
    )
    assert page.tab.locator("#trials tbody tr[data-trial]").count() == 2
    assert page.tab.inner_text("#rows [role=status]").startswith("17 of 18 trials")


@pytest.mark.slow
def test_the_page_says_why_there_are_no_newer_data(live: Watched, store: Store, tmp_path: Path) -> None:
    page, said = live, "(text) => document.querySelector('#header + p').textContent.includes(text)"
    (tmp_path / "store").rename(tmp_path / "moved")
    page.tab.wait_for_function(said, arg="No newer data: store ")
    (tmp_path / "moved").rename(tmp_path / "store")
    page.tab.wait_for_function("() => document.querySelector('#header + p').hidden")
    page.tab.evaluate("sessionStorage.clear()")  # as when the server was started again
    page.tab.wait_for_function(said, arg="open the link that sweeper view has printed")
    assert page.complaints and all("the server responded with a status of" in line for line in page.complaints)
    page.complaints.clear()


@pytest.mark.slow
def test_newer_data_and_another_metric_leave_a_trial_open_until_a_cell_is_picked(live: Watched, store: Store) -> None:
    page = live

    def shown() -> str:
        page.tab.wait_for_timeout(300)  # drawn
        return page.tab.inner_text("#trials p >> nth=0")

    page.tab.locator("#heatmap path[role=button]").nth(4).click()
    page.tab.locator("#rows tbody button", has_text="trial00003").click()
    assert shown() == "Trial trial00003: 1 trial."
    report_epoch(page, store, 9)
    assert shown() == "Trial trial00003: 1 trial."
    page.tab.get_by_label("metric", exact=True).select_option("loss")
    assert shown() == "Trial trial00003: 1 trial."
    page.tab.locator("#heatmap path[role=button]").nth(0).click()
    assert shown() == "beta=0, nu=0.5: 2 trials."
    report_epoch(page, store, 10)
    assert shown() == "beta=0, nu=0.5: 2 trials."
    page.tab.get_by_label("metric", exact=True).select_option("auroc_joint")
    page.tab.wait_for_selector("#trials", state="hidden")


@pytest.mark.slow
@pytest.mark.usefixtures("large")
def test_a_large_sweep_opens_with_its_cells_and_reads_all_trials_on_demand(live: Watched, store: Store) -> None:
    page, rows = live, load(NAME, store.files)
    cells = pivot(rows, "auroc_joint", ("beta", "nu"))

    def means() -> list[float]:
        page.tab.wait_for_function("() => document.querySelector('#heatmap .chart').vega?.data('cells').length === 9")
        drawn: list[float] = page.tab.evaluate(
            "() => document.querySelector('#heatmap .chart').vega.data('cells').map((datum) => datum.mean)"
        )
        return drawn

    assert means() == pytest.approx(cells["mean"].tolist())
    page.tab.get_by_label("rows", exact=True).select_option("nu")
    page.tab.wait_for_function(
        "() => document.querySelector('#heatmap path[role=button]').getAttribute('aria-label').includes('nu=0.5, beta')"
    )
    assert means() == pytest.approx(pivot(rows, "auroc_joint", ("nu", "beta"))["mean"].tolist())
    assert page.tab.inner_text("#rows [role=status]") == "4 of 4 trials on this page"
    page.tab.locator("#heatmap path[role=button]").nth(4).click()
    page.tab.wait_for_function("() => document.querySelector('#rows [role=status]').textContent === '18 of 18 trials'")
    assert page.tab.locator("#trials tbody tr[data-trial]").count() == 2
    assert page.tab.locator("button", has_text="all trials").count() == 0
    assert means() == pytest.approx(pivot(rows, "auroc_joint", ("nu", "beta"))["mean"].tolist())
    report_epoch(page, store, 9)
