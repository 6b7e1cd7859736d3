"""Ids → text, one token at a time, so that nothing shown is ever taken back; and stop strings.

A token is turned into bytes, and bytes into text by Python's incremental UTF-8 decoder. So half a character waits, a
byte that can never become one is shown as U+FFFD as soon as the next character proves it (TXT-2), and one bad byte
never takes back what was whole (TXT-21), which the libraries' own decoders do.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import Any

from engine.errors import PromptRefused

# Bytes that can be part of no character come out of the decoder as these (PEP 383), one for each byte.
_BROKEN = re.compile("[\udc80-\udcff]+")
_BROKEN_CHARACTERS = "".join(map(chr, range(0xDC80, 0xDD00)))
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_alphabet() -> dict[str, int]:
    """The character that byte-level BPE writes for each byte, inverted. Source: GPT-2's encoder (Radford 2019)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


# To the character of the byte's own number. A character that stands for no byte becomes one that Latin-1 lacks.
_BYTES = dict.fromkeys(range(256), 65535) | {ord(character): byte for character, byte in byte_level_alphabet().items()}


@dataclass(frozen=True, slots=True)
class _Rules:
    """How a tokenizer's decoder turns token strings into text, read from its own description."""

    kind: str  # "byte_level", "pieces", "other"
    space: str = ""  # the character that stands for a space
    byte_tokens: bool = False  # <0xE4> stands for a byte
    strip_first: int = 0  # spaces removed at the very beginning
    bare_first: bool = False  # the first token loses all its signs for a space


def _rules(decoder: dict[str, Any] | None) -> _Rules:
    steps = [] if decoder is None else (decoder.get("decoders") or [decoder])
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return _Rules("byte_level")
    if kinds == ["Metaspace"]:
        first = steps[0].get("prepend_scheme", "always") != "never"
        return _Rules("pieces", steps[0].get("replacement", "▁"), bare_first=first)
    space, byte_tokens, strip = "", False, 0
    for before, step in zip([None, *kinds], steps, strict=False):
        match step.get("type"):
            case "Replace" if step.get("content") == " " and not space:
                pattern = step.get("pattern", {})
                space = pattern.get("String", "") if isinstance(pattern, dict) else ""
            case "ByteFallback":
                byte_tokens = True
            case "Fuse":
                pass
            # Behind Fuse it is the text that loses spaces, elsewhere each token.
            case "Strip" if step.get("content") == " " and before == "Fuse" and not step.get("stop"):
                strip = int(step.get("start", 0))
            case _:
                return _Rules("other")
    return _Rules("pieces", space, byte_tokens, strip) if space else _Rules("other")


class Vocabulary:
    """What each token id is as bytes and as a label. Made once per tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        description = json.loads(backend.to_str()) if backend is not None else {}
        self.rules = _rules(description.get("decoder"))
        self.size = len(tokenizer)
        self.special = frozenset(tokenizer.all_special_ids)
        added = description.get("added_tokens") or []
        self._added = {token["id"]: token["content"] for token in added}
        self.special |= {token["id"] for token in added if token.get("special")}
        self._labels: dict[int, str] = {}
        self._string_of = backend.id_to_token if backend is not None else tokenizer.convert_ids_to_tokens

    def token_string(self, token_id: int) -> str | None:
        """The vocabulary's own string, None for an id that the tokenizer does not know (PRM-7)."""
        if token_id in self._added:
            return self._added[token_id]
        if not 0 <= token_id < 2**32:  # the library's own numbers end there
            return None
        token = self._string_of(token_id)
        return token if isinstance(token, str) else None

    def bytes_of(self, token_id: int) -> bytes:
        """A token's bytes, without what depends on its place. Unknown ids give b""."""
        token = self.token_string(token_id)
        return b"" if token is None else self._bytes(token_id, token)

    def _bytes(self, token_id: int, token: str) -> bytes:
        if self.rules.kind == "byte_level":
            try:
                return token.translate(_BYTES).encode("latin-1")
            except (
                UnicodeEncodeError
            ):  # as the library: a token with any other character (an added one) is its own text
                return _utf8(token)
        if self.rules.kind == "pieces":
            if self.rules.byte_tokens and (match := _BYTE_TOKEN.fullmatch(token)):
                return bytes([int(match[1], 16)])
            return _utf8(token.replace(self.rules.space, " "))
        return _utf8(self.decode([token_id]))

    def decode(self, ids: list[int], special: bool = False) -> str:
        """The library's own decode, with the clean-up of spaces off (TXT-5, TXT-22); where that breaks, the tokens'
        names. special: special tokens are written out."""
        try:
            return self.tokenizer.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
        except BaseException as error:
            if not is_breakdown(error):
                raise
        return "".join(self.token_string(i) or "" for i in ids if special or i not in self.special)

    def label(self, token_id: int) -> str:
        """How a token is shown by itself. Never the same for two bars: half characters are shown by their bytes
        (TXT-27), ids without a token by number (PRM-7)."""
        label = self._labels.get(token_id)
        if label is None:
            label = self._labels[token_id] = self._make_label(token_id)
        return label

    def _make_label(self, token_id: int) -> str:
        token = self.token_string(token_id)
        if token is None:
            return f"<id {token_id}>"
        if token_id in self.special:
            return token
        data = self._bytes(token_id, token)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return f"<{data.hex(' ').upper()}>"
        return text or token or f"<id {token_id}>"


def is_breakdown(error: BaseException) -> bool:
    """Whether a tokenizer's library failed. The panics of its inner half are no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def encode(tokenizer: Any, text: str, **options: Any) -> list[int]:
    """The ids of a text. Raises PromptRefused where the library breaks: a damaged tokenizer is good for some texts."""
    try:
        return [int(i) for i in tokenizer(text, **options)["input_ids"]]
    except BaseException as error:
        if not is_breakdown(error):
            raise
        said = " ".join(str(error).split())[:300].rstrip(". ") or type(error).__name__
    raise PromptRefused(
        "This model's tokenizer cannot cut the text into tokens: {said}.",
        "Download tokenizer.json and tokenizer_config.json of this model again.",
        said=said,
    )


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace" if _has_surrogate(text) else "strict")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _replaced(broken: re.Match[str]) -> str:
    """One U+FFFD for each beginning of a character, as UTF-8 decoding with replacement gives."""
    return broken[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class TokenText:
    """The text of one lane as it grows. `add` gives what became certain with a token, `finish` what was held."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._broken = ""  # broken bytes at the end: they wait for the character that proves them
        self._to_strip = vocabulary.rules.strip_first
        self._to_bare = vocabulary.rules.bare_first
        self._window: list[int] = []  # for tokenizers that are neither bytes nor pieces
        self._shown = ""
        self._held = 0  # how many at the window's end wait to be shown

    def add(self, token_id: int) -> str:
        """Text that became certain with this token; empty for special tokens and half characters."""
        if token_id in self.vocabulary.special:
            return ""
        token = self.vocabulary.token_string(token_id)
        if token is None:
            return self._released(final=True) + f"<id {token_id}>"
        if self.vocabulary.rules.kind == "other":
            return self._add_by_decoding(token_id)
        if self._to_bare:
            token, self._to_bare = token.replace(self.vocabulary.rules.space, ""), False
        return self._released(self.vocabulary._bytes(token_id, token))

    def finish(self) -> str:
        """What was waiting for the rest of a character that never came."""
        if self.vocabulary.rules.kind == "other":
            return self.vocabulary.decode(self._window)[len(self._shown) :] if self._window else ""
        return self._released(final=True)

    def _released(self, data: bytes = b"", final: bool = False) -> str:
        text = self._broken + self._decoder.decode(data, final)
        if text.isascii():  # most tokens: nothing of it is broken
            self._broken = ""
            return self._stripped(text)
        whole = len(text) if final else len(text.rstrip(_BROKEN_CHARACTERS))
        self._broken = text[whole:]
        return self._stripped(_BROKEN.sub(_replaced, text[:whole]))

    def _stripped(self, text: str) -> str:
        while self._to_strip and text:
            if text[0] != " ":
                self._to_strip = 0
                break
            text, self._to_strip = text[1:], self._to_strip - 1
        return text

    def _add_by_decoding(self, token_id: int) -> str:
        """For decoders we have no rules for: the growth of the library's decode of a window, held while it ends in
        U+FFFD (as text-generation-inference and vLLM do), and never more than four tokens long (TXT-23)."""
        decode = self.vocabulary.decode
        self._window.append(token_id)
        decoded = decode(self._window)
        self._held += 1
        if decoded.endswith("\ufffd") and self._held < 5 and not self._is_replacement(token_id):
            return ""
        if not decoded.startswith(self._shown):
            # The decoder took something back: what was shown stays (promise of DESIGN), and what waited goes on from
            # the last that was shown, or stands by itself.
            self._window = self._window[-self._held - 1 :]
            self._shown, decoded = decode(self._window[: -self._held]), decode(self._window)
            if not decoded.startswith(self._shown):
                self._window, self._shown = self._window[-self._held :], ""
                decoded = decode(self._window)
        new, self._shown, self._held = decoded[len(self._shown) :], decoded, 0
        if len(self._window) > 32 and not decoded.endswith("\ufffd"):
            # Keep a little context, since decoders join pieces by their neighbours.
            self._window = self._window[-8:]
            self._shown = decode(self._window)
        return new

    def _is_replacement(self, token_id: int) -> bool:
        token = self.vocabulary.token_string(token_id)
        return token is not None and "\ufffd" in token


class StopMatcher:
    """Holds back text that may be the beginning of a stop string, and nothing longer (TXT-7).

    Only text given to `add` is searched, so the prompt never counts (TXT-25).
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.stop = stop
        self.held = ""  # what waits
        self.matched: str | None = None

    def add(self, text: str) -> str:
        """What can be shown. Sets `matched` once a stop string is whole; from there on nothing is shown."""
        if self.matched is not None:
            return ""
        if not self.stop:
            return text
        pending = self.held + text
        found = [(pending.find(stop), -len(stop), stop) for stop in self.stop if stop in pending]
        if found:
            at, _, self.matched = min(found)  # the earliest; of those that begin together any cuts at the same place
            self.held = ""
            return pending[:at]
        keep = max(self._overlap(pending, stop) for stop in self.stop)
        self.held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def finish(self) -> str:
        """What was held and turned out to be no stop string (TXT-9)."""
        held, self.held = self.held, ""
        return held

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of `text` that is a proper beginning of `stop`."""
        for length in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:length]):
                return length
        return 0
