"""Search and download against a stand-in of the hub: equal bytes, resume, and a sentence for every failure."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine import hub as engine_hub
from engine import hub_meter, hub_requests
from engine.catalog import find_models, resolve
from engine.control import Control
from engine.errors import Cancelled, CannotLoad, FileRefused, RemoteFailed
from engine.hub_store import discard, remembered, unfinished
from tests.engine.hub_stand_in import COMMIT, Repository, checksum, running_hub

LARGE = bytes(range(256)) * 4096  # 1 MiB
FILES = {
    "config.json": b'{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
    "README.md": "---\nlicense: apache-2.0\n---\n模型".encode(),
    "model.safetensors": LARGE,
    "pytorch_model.bin": LARGE,
    "onnx/model.onnx": b"other",
    "picture.png": b"other",
}
GGUF = b"GGUF" + bytes(1000)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("engine.default_model.default_model_path", lambda: tmp_path / "none")
    monkeypatch.setattr(engine_hub, "RETRY_AFTER_S", (0.0, 0.0))
    monkeypatch.setattr(hub_meter, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(hub_requests, "_token", lambda: "")
    return tmp_path / "hub"


@pytest.fixture
def hub(monkeypatch):
    with running_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        running.repositories["org/small"] = Repository(dict(FILES), ("model.safetensors", "pytorch_model.bin"))
        yield running


def download(name: str = "safetensors", hub_id: str = "org/small", emit=lambda progress: None, control=None) -> str:
    return engine_hub.download(hub_id, name, emit, control or Control())


def stop_at(share: float):
    """(emit, control): a person who cancels when this share has arrived."""
    control = Control()

    def emit(progress):
        if progress.state == "downloading" and progress.done_bytes >= share * progress.total_bytes:
            control.cancel()

    return emit, control


def told(act, kind=RemoteFailed) -> str:
    with pytest.raises(kind) as caught:
        act()
    return f"{caught.value.what} {caught.value.fix}"


def tree(folder: Path) -> dict[str, object]:
    """What a loader finds: links by where they lead, files by what is in them."""
    found: dict[str, object] = {}
    for part in ("blobs", "snapshots", "refs"):
        for path in sorted((folder / part).rglob("*")):
            if path.is_symlink() or path.is_file():
                name = path.relative_to(folder).as_posix()
                found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


# ---------------------------------------------------------------- asking


def test_search_gives_what_the_hub_tells_most_downloaded_first(hub):
    facts = {
        "downloads": 5, "likes": 7, "tags": ["license:mit"], "pipeline_tag": "text-generation",
        "lastModified": "2026-01-31T10:00:00.000Z",
        "safetensors": {"parameters": {"BF16": 1000, "F32": 10}, "total": 1010},
    }  # fmt: skip
    hub.repositories["org/small"].facts = facts
    hub.repositories["org/small-2"] = Repository({}, facts={"downloads": 90, "gguf": {"total": 77}}, gated=True)
    hub.repositories["org/other"] = Repository({})
    first, second = engine_hub.search(" Small ", Control())
    assert (first.hub_id, first.downloads, first.gated, first.parameters) == ("org/small-2", 90, True, 77)
    assert (first.size_bytes, first.licence) == (None, "")
    assert (second.hub_id, second.likes, second.licence, second.updated) == ("org/small", 7, "mit", "2026-01-31")
    assert (second.parameters, second.size_bytes) == (1010, 2040)
    assert [each.hub_id for each in engine_hub.search("", Control(), "text-generation")] == ["org/small"]
    assert hub.asked[0].query["sort"] == ["downloads"]


def test_the_person_may_ask_although_loading_is_kept_offline(hub):
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    from huggingface_hub import constants

    assert constants.HF_HUB_OFFLINE
    assert len(engine_hub.search("small", Control())) == 1
    assert constants.HF_HUB_OFFLINE


def test_an_offer_holds_safetensors_and_each_gguf_file_and_leaves_out_the_rest(hub):
    hub.repositories["org/small"].files |= {
        "m-Q8_0.gguf": GGUF * 2, "m-Q4_0.gguf": GGUF, "big-00001-of-00002.gguf": GGUF, "mmproj-m.gguf": GGUF,
    }  # fmt: skip
    offer = engine_hub.offer("org/small", Control())
    assert [(each.name, each.weights) for each in offer.sets] == [
        ("safetensors", "safetensors"), ("m-Q4_0.gguf", "gguf"), ("m-Q8_0.gguf", "gguf"),
    ]  # fmt: skip
    first = offer.sets[0]
    assert set(first.files) == set(FILES) - {"pytorch_model.bin", "onnx/model.onnx", "picture.png"}
    assert first.total_bytes == sum(len(FILES[name]) for name in first.files)
    assert first.here_bytes == 0
    assert "several parts" in offer.note
    assert (offer.revision, offer.page) == (COMMIT, f"{hub.address}/org/small")


def test_pickles_are_offered_only_where_there_are_no_safetensors(hub):
    del hub.repositories["org/small"].files["model.safetensors"]
    assert [each.weights for each in engine_hub.offer("org/small", Control()).sets] == ["pickle"]


def test_shards_come_with_their_index(hub):
    files = hub.repositories["org/small"].files
    del files["model.safetensors"], files["pytorch_model.bin"]
    shards = {f"model-0000{n}-of-00002.safetensors": LARGE for n in (1, 2)}
    files |= shards | {"model.safetensors.index.json": b"{}", "other-00001-of-00002.safetensors": LARGE}
    (only,) = engine_hub.offer("org/small", Control()).sets
    assert {name for name in only.files if "model" in name} == {*shards, "model.safetensors.index.json"}


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"adapter_config.json": b"{}", "adapter_model.safetensors": LARGE}, "adapter"),
        ({"model_index.json": b"{}"}, "pictures"),
        ({"config.json": b"{}", "tf_model.h5": LARGE}, "no weights"),
        ({"notes.txt": b""}, "no config.json"),
    ],
)
def test_a_repository_without_a_model_says_why(hub, files, word):
    hub.repositories["org/none"] = Repository(files)
    offer = engine_hub.offer("org/none", Control())
    assert offer.sets == ()
    assert word in offer.note


def test_a_name_that_leads_out_of_the_folder_is_left_out(hub, cache):
    hub.repositories["org/small"].files |= {"../../../evil.json": b"x", "a\\b.json": b"x", "c:d.json": b"x"}
    offer = engine_hub.offer("org/small", Control())
    assert not [name for name in offer.sets[0].files if "evil" in name or "\\" in name or ":" in name]


# ---------------------------------------------------------------- downloading


def test_a_download_leaves_what_the_library_itself_would_leave(hub, cache, tmp_path):
    assert download() == "org/small"
    ours = tree(cache / "models--org--small")
    code = (
        "import sys; from huggingface_hub import hf_hub_download\n"
        "for name in sys.argv[2:]: hf_hub_download('org/small', name, cache_dir=sys.argv[1])"
    )
    names = [name for name in FILES if name not in ("pytorch_model.bin", "onnx/model.onnx", "picture.png")]
    environment = os.environ | {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "theirs"), *names], check=True, env=environment)
    assert ours == tree(tmp_path / "theirs" / "models--org--small")
    assert (resolve("org/small").folder / "model.safetensors").read_bytes() == LARGE
    assert unfinished() == []


def test_progress_counts_every_byte_once_and_names_speed_and_rest(hub):
    said = []
    download(emit=said.append)
    done = [progress.done_bytes for progress in said]
    assert done == sorted(done)
    assert said[0].state == "listing"
    assert {progress.state for progress in said[1:]} == {"downloading"}
    assert done[-1] == said[-1].total_bytes == sum(len(FILES[name]) for name in FILES) - len(LARGE) - 10
    assert {progress.hub_id for progress in said} == {"org/small"}


def test_a_cancel_breaks_off_a_silent_server_and_the_next_start_goes_on_from_there(hub, cache):
    hub.hold_at["model.safetensors"] = 600_000
    emit, control = stop_at(0.5)
    with pytest.raises(Cancelled):
        download(emit=emit, control=control)
    (left,) = unfinished()
    assert (left.hub_id, left.name) == ("org/small", "safetensors")
    assert 0.5 * left.total_bytes <= left.done_bytes < left.total_bytes
    assert "not on this computer" in told(lambda: resolve("org/small"), CannotLoad)
    here = next((cache / "models--org--small" / "blobs").glob("*.incomplete")).stat().st_size
    hub.hold_at.clear()
    before = len(hub.asked)
    assert download() == "org/small"
    later = hub.asked[before:]
    assert {asked.range for asked in later} == {
        f"bytes={here}-{len(LARGE) - 1}"
    }  # at the hub and where it sends to; no other file
    assert (resolve("org/small").folder / "model.safetensors").read_bytes() == LARGE
    assert unfinished() == []


def test_a_connection_that_is_cut_is_taken_up_where_it_broke(hub):
    hub.cut_at["model.safetensors"] = 300_000
    said = []
    download(emit=said.append)
    assert "retrying" in [progress.state for progress in said]
    assert hub.ranges_asked("//model.safetensors") == ["", f"bytes=300000-{len(LARGE) - 1}"]
    assert (resolve("org/small").folder / "model.safetensors").read_bytes() == LARGE


def test_a_server_without_ranges_sends_it_all_again(hub):
    hub.cut_at["model.safetensors"] = 300_000
    hub.ranges = False
    download()
    assert (resolve("org/small").folder / "model.safetensors").read_bytes() == LARGE


def test_a_very_large_file_is_asked_for_in_pieces(hub, monkeypatch):
    monkeypatch.setattr(engine_hub, "LARGEST_ANSWER", 400_000)
    said = []
    download(emit=said.append)
    asked = hub.ranges_asked("//model.safetensors")
    assert asked == ["bytes=0-399999", "bytes=400000-799999", f"bytes=800000-{len(LARGE) - 1}"]
    assert "retrying" not in [progress.state for progress in said]
    assert (resolve("org/small").folder / "model.safetensors").read_bytes() == LARGE


def test_a_trouble_of_the_hub_that_passes_is_not_told(hub):
    hub.refuse["/resolve/"] = (503, {})
    hub.refuse_times = 2
    assert download() == "org/small"


def test_only_one_of_two_programs_writes_a_file(hub, cache):
    from filelock import FileLock

    hub.hold_at["model.safetensors"] = 10
    emit, control = stop_at(0)
    with pytest.raises(Cancelled):
        download(emit=emit, control=control)
    (plan,) = remembered()
    for file in plan.files:
        plan.lock(file).parent.mkdir(parents=True, exist_ok=True)
    with FileLock(plan.lock(next(f for f in plan.files if f.name == "config.json"))):
        hub.hold_at.clear()
        shutil.rmtree(plan.folder / "blobs")
        assert "Another program" in told(download)
    assert download() == "org/small"


def test_a_gguf_file_comes_alone_and_is_named_by_its_path(hub, cache):
    hub.repositories["org/gguf"] = Repository({"m-Q4_0.gguf": GGUF, "README.md": b"x"}, ("m-Q4_0.gguf",))
    model = download("m-Q4_0.gguf", "org/gguf")
    assert Path(model).read_bytes() == GGUF
    assert resolve(model).kind == "gguf"
    assert resolve("org/gguf").path == Path(model)


def test_a_token_goes_to_the_hub_and_not_to_where_it_sends_us(hub, monkeypatch):
    monkeypatch.setattr(hub_requests, "_token", lambda: "secret")
    hub.token = "secret"
    hub.repositories["org/small"].gated = True
    assert download() == "org/small"
    sent = {asked.host.partition(":")[0]: asked.authorization for asked in hub.asked}
    assert sent == {"127.0.0.1": "Bearer secret", "localhost": ""}


def test_while_it_is_unfinished_the_list_says_so_and_giving_up_leaves_nothing(hub, cache):
    hub.hold_at["model.safetensors"] = 600_000
    emit, control = stop_at(0.5)
    with pytest.raises(Cancelled):
        download(emit=emit, control=control)
    (choice,) = find_models()
    assert (choice.kind, choice.hub_id) == ("cache", "org/small")
    assert choice.problem is not None
    assert "not finished" in choice.problem.what
    (plan,) = remembered()
    assert discard(plan) > 600_000
    assert find_models() == []
    assert not plan.folder.exists()


def test_giving_up_one_download_keeps_what_another_has_finished(hub):
    hub.repositories["org/gguf"] = Repository(
        {"a.gguf": GGUF, "b.gguf": LARGE, "README.md": b"x"}, ("a.gguf", "b.gguf")
    )
    first = download("a.gguf", "org/gguf")
    hub.hold_at["b.gguf"] = 600_000
    emit, control = stop_at(0.5)
    with pytest.raises(Cancelled):
        download("b.gguf", "org/gguf", emit, control)
    discard(remembered()[0])
    assert Path(first).read_bytes() == GGUF
    assert (Path(first).parent / "README.md").read_bytes() == b"x"
    assert [choice.name for choice in find_models()] == ["a"]


def test_a_newer_version_takes_the_place_of_the_old_one_only_when_it_is_whole(hub):
    download()
    old = resolve("org/small").folder
    repository = hub.repositories["org/small"]
    repository.commit = "d" * 40
    repository.files["model.safetensors"] = LARGE[::-1]
    hub.hold_at["model.safetensors"] = 600_000
    emit, control = stop_at(0.5)
    with pytest.raises(Cancelled):
        download(emit=emit, control=control)
    assert resolve("org/small").folder == old
    hub.hold_at.clear()
    download()
    assert (resolve("org/small").folder / "model.safetensors").read_bytes() == LARGE[::-1]


# ---------------------------------------------------------------- failing


def test_gated_says_what_to_do_with_and_without_a_login(hub, monkeypatch):
    hub.repositories["org/small"].gated = True
    assert engine_hub.offer("org/small", Control()).gated
    stranger = told(download)
    assert "gated" in stranger
    assert "hf auth login" in stranger
    monkeypatch.setattr(hub_requests, "_token", lambda: "not let in")
    assert "has not been let in" in told(download)


def test_a_token_that_is_refused_is_named(hub):
    hub.refuse["/api/"] = (401, {"x-error-message": "Invalid credentials in Authorization header"})
    assert "token" in told(lambda: engine_hub.search("x", Control()))


def test_what_is_not_there_is_told(hub):
    assert "There is no org/nothing" in told(lambda: engine_hub.offer("org/nothing", Control()))
    assert "no longer holds" in told(lambda: download("x.gguf"))
    assert "no name of a repository" in told(lambda: engine_hub.offer("../../etc", Control()))


def test_no_connection_is_told_with_the_way_out(hub, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        sentence = told(lambda: engine_hub.search("x", Control()))
    assert "cannot be reached" in sentence
    assert "load without it" in sentence


def test_a_server_that_never_answers_is_told(hub, monkeypatch):
    monkeypatch.setattr(hub_requests, "READ_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "does not answer" in told(lambda: engine_hub.search("x", Control()))


def test_a_search_is_cancelled_while_the_server_is_silent(monkeypatch):
    control = Control()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        control.cancel()
        with pytest.raises(Cancelled):
            engine_hub.search("x", control)


def test_a_name_server_that_does_not_answer_holds_up_neither_a_cancel_nor_the_end(monkeypatch):
    control, asked, answer = Control(), threading.Event(), threading.Event()

    def hang(*args, **options):
        asked.set()
        answer.wait()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    watcher = threading.Thread(target=lambda: (asked.wait(), control.cancel()))
    watcher.start()
    with pytest.raises(Cancelled):
        engine_hub.search("x", control)
    watcher.join()
    (lookup,) = [thread for thread in threading.enumerate() if thread.name == "name lookup"]
    assert lookup.daemon
    answer.set()
    lookup.join()
    assert "no address is known" in told(lambda: engine_hub.search("x", Control()))


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (429, {"retry-after": "17"}, "17 s"),
        (429, {"ratelimit": '"api";r=0;t=55', "ratelimit-policy": '"fixed window";"api";q=500;w=300'}, "55 s"),
        (429, {}, "patience"),
        (500, {}, "problem of its own"),
        (418, {}, "418"),
    ],
)
def test_refusals_are_sentences(hub, status, headers, words):
    hub.refuse["/"] = (status, headers)
    assert words in told(lambda: engine_hub.search("x", Control()))
    assert words in told(download)


def test_a_sign_in_page_is_no_hub(hub):
    hub.page = b"<!doctype html><html>Welcome</html>"
    assert "sign-in page" in told(lambda: engine_hub.search("x", Control()))
    assert "sign-in page" in told(lambda: engine_hub.offer("org/small", Control()))


def test_wrong_bytes_are_found_and_do_not_stay(hub, cache):
    hub.sent_instead["model.safetensors"] = LARGE[:-1] + b"!"
    assert "another checksum" in told(download)
    assert not list(cache.rglob("*.incomplete"))
    assert not list(cache.rglob("snapshots"))
    hub.sent_instead.clear()
    assert download() == "org/small"


def test_wrong_bytes_of_a_small_file_are_found_too(hub):
    hub.sent_instead["config.json"] = FILES["config.json"].replace(b"llama", b"lLama")
    assert "config.json arrived with another checksum" in told(download)


@pytest.mark.parametrize("change", [LARGE + b"more", LARGE[:-5]])
def test_a_file_that_changes_its_size_is_told(hub, change):
    hub.sent_instead["model.safetensors"] = change
    assert f"{len(change):,} bytes" in told(download)


def test_a_version_that_is_gone_is_told(hub):
    hub.hold_at["model.safetensors"] = 600_000
    emit, control = stop_at(0.5)
    with pytest.raises(Cancelled):
        download(emit=emit, control=control)
    hub.repositories["org/small"].commit = "e" * 40
    assert "no longer there" in told(download)


def test_a_disk_too_small_is_told_before_a_byte_comes(hub, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    assert "too full" in told(download, FileRefused)
    assert not [asked for asked in hub.asked if "resolve" in asked.path]


def test_a_disk_that_fills_up_on_the_way_keeps_what_has_arrived(hub, cache, monkeypatch):
    opened = Path.open

    def filling(path, mode="r", *args, **kwargs):
        stream = opened(path, mode, *args, **kwargs)
        if path.name.endswith(".incomplete") and mode == "wb" and path.name.startswith(checksum(LARGE, True)):
            return Filling(stream)
        return stream

    class Filling:
        def __init__(self, stream):
            self.stream, self.room = stream, 500_000

        def __enter__(self):
            return self

        def __exit__(self, *args):
            self.stream.close()

        def write(self, data):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.stream.write(data)

    monkeypatch.setattr(Path, "open", filling)
    assert "too full" in told(download, FileRefused)
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    assert unfinished()[0].done_bytes > 100_000
    assert download() == "org/small"


@pytest.mark.parametrize("damage", ["{", "[]", '{"files": 3}', '{"files": [{"name": "../x", "size": 1}]}'])
def test_a_damaged_memory_of_a_download_is_passed_over(cache, damage):
    folder = cache / "models--org--small"
    folder.mkdir(parents=True)
    (folder / "glasswork-download-0.json").write_text(damage)
    assert unfinished() == []


def test_asking_the_hub_imports_no_torch():
    code = (
        "import sys, os; os.environ['HF_ENDPOINT'] = 'http://127.0.0.1:9'\n"
        "from engine import hub; from engine.control import Control\n"
        "try: hub.search('x', Control())\n"
        "except Exception: pass\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
