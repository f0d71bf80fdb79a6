"""The server's answers: types, caching, ranges, headers, and what it refuses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from bundle_factory import sample
from starlette.testclient import TestClient

from tilewright.base.errors import StoreFull
from tilewright.bundle import Bundle, Manifest, open_bundle, write
from tilewright.server import app, create_app


def driver_of(manifest: Manifest) -> str:
    return manifest.section("wasm").programs["driver"].file


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return write(sample(200_000), tmp_path / "bundle")


@pytest.fixture
def web(tmp_path: Path) -> Path:
    files = {
        "page/index.html": "<!doctype html>",
        "page/page.css": "a{}",
        "page/.secret": "hidden",
        "engine/engine.js": "export {};",
        "vendor/lib/lib.min.mjs": "export {};",
        "vendor/lib/font.woff2": "x",
        "host/host.html": "<!doctype html>host",
        "secret.txt": "secret",
    }
    for name, text in files.items():
        path = tmp_path / "web" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "web" / "page" / "link.txt").symlink_to(tmp_path / "web" / "secret.txt")
    return tmp_path / "web"


@pytest.fixture
def client(tmp_path: Path, web: Path, manifest: Manifest) -> TestClient:
    return TestClient(create_app({"my model": tmp_path / "bundle"}, web=web))


def blob(manifest: Manifest) -> str:
    return f"/bundles/my model/{manifest.weights.shards[0].file}"


@pytest.mark.parametrize(
    ("url", "kind", "text"),
    [
        ("/", "text/html; charset=utf-8", "<!doctype html>"),
        ("/page.css", "text/css; charset=utf-8", "a{}"),
        ("/engine/engine.js", "text/javascript; charset=utf-8", "export {};"),
        ("/vendor/lib/lib.min.mjs", "text/javascript; charset=utf-8", "export {};"),
        ("/vendor/lib/font.woff2", "font/woff2", "x"),
        ("/host/host.html?token=1", "text/html; charset=utf-8", "<!doctype html>host"),
    ],
)
def test_pages(client: TestClient, url: str, kind: str, text: str) -> None:
    answer = client.get(url)
    assert answer.status_code == 200
    assert answer.text == text
    assert answer.headers["content-type"] == kind
    assert answer.headers["cache-control"] == "no-cache"
    packed = answer.headers.get("content-encoding") == "gzip"
    assert packed == (not url.endswith(".woff2"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert answer.headers["etag"] == f'"{digest}{"-gzip" if packed else ""}"'
    again = client.get(url, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("takes", "packed"),
    [("gzip", True), ("br;q=1.0, GZIP;q=0.5", True), ("x-gzip", False), ("identity", False)]
    + [(f"deflate, gzip; q={weight}", False) for weight in ("0", "0.000")],
)
def test_text_goes_out_in_gzip_if_it_may(
    client: TestClient, web: Path, takes: str, packed: bool
) -> None:
    """Both forms have tags of their own, and caches keep them apart."""
    text = "export const long = 'x';\n" * 1000
    (web / "engine" / "engine.js").write_text(text)
    answer = client.get("/engine/engine.js", headers={"accept-encoding": takes})
    assert answer.text == text
    assert answer.headers.get("content-encoding") == ("gzip" if packed else None)
    assert (int(answer.headers["content-length"]) < len(text) / 10) == packed
    assert answer.headers["vary"] == "accept-encoding"
    assert answer.headers["etag"].endswith('-gzip"') == packed
    same = {"accept-encoding": takes, "if-none-match": answer.headers["etag"]}
    assert client.get("/engine/engine.js", headers=same).status_code == 304
    other = {"accept-encoding": "identity" if packed else "gzip"}
    assert client.get("/engine/engine.js", headers=same | other).status_code == 200


def test_etag_follows_the_content(client: TestClient, web: Path) -> None:
    before = client.get("/engine/engine.js").headers["etag"]
    (web / "engine" / "engine.js").write_text("export const a = 1;")
    after = client.get("/engine/engine.js", headers={"if-none-match": before})
    assert after.status_code == 200
    assert after.headers["etag"] != before


def test_blob(client: TestClient, manifest: Manifest) -> None:
    ref = manifest.weights.shards[0]
    answer = client.get(blob(manifest))
    assert hashlib.sha256(answer.content).hexdigest() == ref.digest
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["etag"] == f'"{ref.digest}"'
    assert answer.headers["content-length"] == str(ref.bytes)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["accept-ranges"] == "bytes"
    driver = client.get(f"/bundles/my model/{driver_of(manifest)}")
    assert driver.headers["content-type"] == "application/wasm"


def test_pointer_is_revalidated(client: TestClient, tmp_path: Path) -> None:
    url = "/bundles/my model/bundle.json"
    first = client.get(url)
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["content-type"] == "application/json"
    same = {"if-none-match": first.headers["etag"]}
    assert client.get(url, headers=same).status_code == 304
    write(sample(5, name="second"), tmp_path / "bundle")
    assert client.get(url, headers=same).status_code == 200


@pytest.mark.parametrize("tag", ['"{}"', 'W/"{}"', '"x", "{}"', "*"])
def test_not_modified(client: TestClient, manifest: Manifest, tag: str) -> None:
    found = tag.format(manifest.weights.shards[0].digest)
    answer = client.get(blob(manifest), headers={"if-none-match": found})
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == f'"{manifest.weights.shards[0].digest}"'
    assert "immutable" in answer.headers["cache-control"]
    other = client.get(blob(manifest), headers={"if-none-match": '"other"'})
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("0-9", 0, 9), ("100-", 100, 199_999), ("-5", 199_995, 199_999), ("5-999999", 5, 199_999)],
)
def test_range(client: TestClient, manifest: Manifest, asked: str, first: int, last: int) -> None:
    whole = client.get(blob(manifest)).content
    answer = client.get(blob(manifest), headers={"range": f"bytes={asked}"})
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/200000"
    assert answer.content == whole[first : last + 1]
    assert answer.headers["etag"] == f'"{manifest.weights.shards[0].digest}"'


def test_range_behind_the_end(client: TestClient, manifest: Manifest) -> None:
    answer = client.get(blob(manifest), headers={"range": "bytes=200000-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == "bytes */200000"


def test_if_range(client: TestClient, manifest: Manifest) -> None:
    tag = f'"{manifest.weights.shards[0].digest}"'
    ask = {"range": "bytes=0-9"}
    assert client.get(blob(manifest), headers=ask | {"if-range": tag}).status_code == 206
    changed = client.get(blob(manifest), headers=ask | {"if-range": '"old"'})
    assert (changed.status_code, len(changed.content)) == (200, 200_000)


def test_head(client: TestClient, manifest: Manifest) -> None:
    for url in (blob(manifest), "/", "/bundles/my model/bundle.json"):
        head, get = client.head(url), client.get(url)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-length", "content-type", "etag", "cache-control"):
            assert head.headers[name] == get.headers[name]


@pytest.mark.parametrize(
    "url",
    [
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/engine/..%2f..%2fsecret.txt",
        "/engine//engine.js",
        "/link.txt",
        "/.secret",
        "/engine/%00",
        "/engine/..%5csecret.txt",
        "/engine/",
        "/bundles/my model/notes.txt",
        "/bundles/my model/blobs/notes.txt",
        "/bundles/my model/..%2f..%2fweb%2fsecret.txt",
        "/bundles/other/bundle.json",
        "/bundles/my model/blobs/" + "0" * 64 + ".bin",
        "/nowhere",
        "/" + "long" * 100,
    ],
)
def test_refused(client: TestClient, tmp_path: Path, url: str) -> None:
    (tmp_path / "bundle" / "notes.txt").write_text("secret")
    (tmp_path / "bundle" / "blobs" / "notes.txt").write_text("secret")
    answer = client.get(url)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not-found"


def test_only_reading(client: TestClient) -> None:
    answer = client.post("/api/bundles")
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "method-not-allowed"


def test_headers_everywhere(client: TestClient, manifest: Manifest) -> None:
    asks = [("/", {}), ("/api/bundles", {}), ("/nowhere", {}), ("/healthz", {})]
    asks += [(blob(manifest), {"range": "bytes=0-1"}), (blob(manifest), {"if-none-match": "*"})]
    asks += [(blob(manifest), {"range": "bytes=999999-"})]
    statuses = set()
    for url, headers in asks:
        answer = client.get(url, headers=headers)
        statuses.add(answer.status_code)
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-embedder-policy"] == "require-corp"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self' 'wasm-unsafe-eval';" in policy
        assert "unsafe-inline" not in policy
    assert statuses == {200, 206, 304, 404, 416}


def test_without_isolation(tmp_path: Path, web: Path, manifest: Manifest) -> None:
    client = TestClient(create_app({"m": tmp_path / "bundle"}, web=web, isolation=False))
    answer = client.get("/")
    assert "cross-origin-opener-policy" not in answer.headers
    assert "cross-origin-embedder-policy" not in answer.headers
    assert "content-security-policy" in answer.headers
    assert client.get(f"/bundles/m/{driver_of(manifest)}").status_code == 200


def test_a_list_opens_each_bundle_once_until_it_is_built_again(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def counted(path: Path) -> Bundle:
        opened.append(path)
        return open_bundle(path)

    monkeypatch.setattr("tilewright.server.app.open_bundle", counted)
    first = client.get("/api/bundles").json()
    assert client.get("/api/bundles").json() == first
    assert len(opened) == 1
    write(sample(9), tmp_path / "bundle")
    assert client.get("/api/bundles").json() != first
    assert len(opened) == 2


def test_list(client: TestClient, tmp_path: Path) -> None:
    (entry,) = client.get("/api/bundles").json()
    assert entry["bytes"] > 200_000
    assert {k: v for k, v in entry.items() if k != "bytes"} == {
        "name": "my model",
        "url": "/bundles/my%20model/",
        "inputs": [{"name": "x", "dtype": "f32", "shape": [1, "n"]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": [1, "n"]}],
        "dims": {"n": [16, 32]},
        "tuned": False,
    }
    assert client.get(entry["url"] + "bundle.json").status_code == 200
    (tmp_path / "bundle" / "bundle.json").write_text("{}")
    (broken,) = client.get("/api/bundles").json()
    assert broken["error"] == {
        "code": "bundle-corrupt",
        "message": "The bundle is broken",
        "hint": "See the server's log",
        "facts": {},
    }


def test_strangers_are_not_told_where_files_are(
    client: TestClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is."""
    (tmp_path / "bundle" / "bundle.json").unlink()
    answer = client.get("/api/bundles")
    assert answer.json()[0]["error"]["code"] == "bundle-corrupt"
    assert str(tmp_path) not in answer.text
    assert str(tmp_path) in caplog.text


def test_an_error_of_our_own_says_nothing_of_the_server(
    tmp_path: Path, web: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StoreFull("No room is left", hint=f"in {tmp_path}", path=tmp_path)

    monkeypatch.setattr(app, "send_path", fails)
    client = TestClient(create_app({"m": tmp_path}, web=web), raise_server_exceptions=False)
    answer = client.get("/bundles/m/bundle.json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "store-full")
    assert str(tmp_path) not in answer.text
    assert str(tmp_path) in caplog.text


def test_bundles_may_be_added_later(tmp_path: Path, web: Path, manifest: Manifest) -> None:
    folders: dict[str, Path] = {}
    client = TestClient(create_app(folders, web=web))
    assert client.get("/api/bundles").json() == []
    folders["late"] = tmp_path / "bundle"
    assert client.get(f"/bundles/late/{driver_of(manifest)}").status_code == 200
