"""Prompts → ids: chat templates, special tokens, and what ends a run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import PromptRefused, WorkbenchError
from engine.events import EndToken, PromptPreview, PromptToken
from engine.settings import Request
from engine.text import encode
from engine.words import WordForm, WordsQuestion, WordTokens

if TYPE_CHECKING:
    from engine.session import Session


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt ready to run. ids: token ids. text: after the template, special tokens visible."""

    ids: list[int]
    text: str
    tokens: tuple[PromptToken, ...]
    notes: tuple[str, ...]
    tokenise_ms: float


def prepare(session: Session, request: Request, lane: int = 0) -> PreparedPrompt:
    """The ids that a lane's prompt becomes.

    Raises PromptRefused when the prompt is empty and the model has no BOS, does not fit the context, or the chat
    template refuses it.
    """
    began = time.perf_counter()
    asked = request.lane_prompt(lane)
    prompt, notes = _without_surrogates(asked.prompt)
    system = None if asked.system is None else _without_surrogates(asked.system)[0]
    if request.prompt_ids:
        ids = list(request.prompt_ids)
    elif request.raw:
        ids = _raw_ids(session, prompt)
        notes += _raw_notes(session, prompt)
    else:
        ids, more = _chat_ids(session, prompt, system, request.markers_as_text)
        notes += more
    if not ids:
        raise PromptRefused("The prompt is empty, and this model has no token to begin with.", "Write something.")
    largest = max(ids)
    if largest >= session.facts.vocab_size or (largest := min(ids)) < 0:
        raise PromptRefused(
            "The tokenizer gives the id {largest}, and the model knows only {size} tokens.",
            "This tokenizer does not belong to this model; load the folder that both came in.",
            largest=largest,
            size=session.facts.vocab_size,
        )
    settings = request.lanes[lane]
    named = {token_id for token_id, _ in settings.logit_bias} | set(settings.banned).union(*settings.banned_sequences)
    if named and max(named) >= session.facts.vocab_size:
        raise PromptRefused(
            "There is no token {largest} to ban or to bias: this model knows {size} tokens.",
            "Give ids from 0 up to {most}.",
            largest=max(named),
            size=session.facts.vocab_size,
            most=session.facts.vocab_size - 1,
        )
    context, written = session.facts.context_tokens, len(request.written)
    if context and len(ids) + written >= context:
        if written and len(ids) < context:
            raise PromptRefused(
                "Prompt ({prompt}) and text written so far ({written}) leave no room in this model's context of "
                "{context} tokens.",
                "Go on from an earlier word; at least one token must be left to write.",
                prompt=len(ids),
                written=written,
                context=context,
            )
        raise PromptRefused(
            "The prompt is {prompt} tokens long, and this model's context holds {context}.",
            "Shorten the prompt; at least one token must be left to write.",
            prompt=len(ids),
            context=context,
        )
    vocabulary = session.vocabulary
    tokens = tuple(PromptToken(i, vocabulary.label(i), i in vocabulary.special) for i in ids)
    return PreparedPrompt(
        ids, vocabulary.decode(ids, special=True), tokens, tuple(notes), (time.perf_counter() - began) * 1e3
    )


def continuation(session: Session, text: str) -> list[int]:
    """The ids of a text that goes on where something was written: no marks of a beginning, typed marks as text.

    Tokenizers that put a space before a text are asked with a line's end before it, which is taken away again.
    """
    vocabulary = session.vocabulary

    def ids_of(text: str) -> list[int]:
        return encode(session.tokenizer, text, add_special_tokens=False, split_special_tokens=True)

    text = _without_surrogates(text)[0]
    ids = ids_of(text)
    if not text.startswith(" ") and ids and vocabulary.label(ids[0]).startswith(" "):
        before, both = ids_of("\n"), ids_of("\n" + text)
        if both[: len(before)] == before:
            return both[len(before) :]
    return ids


def word_tokens(session: Session, question: WordsQuestion) -> WordTokens:
    """What words are as this model's tokens. One that begins with a space has one form, others one without and one
    with a space before them; a special token's name is text."""
    words = tuple(tuple(_forms(session, word)) for word in question.words)
    return WordTokens(words, tuple(map(session.vocabulary.label, question.ids)))


def _forms(session: Session, word: str) -> list[WordForm]:
    found: dict[tuple[int, ...], WordForm] = {}
    for text in (word,) if word[:1].isspace() else (word, " " + word):
        ids = tuple(continuation(session, text))
        if ids and ids not in found:
            found[ids] = WordForm(text, ids, tuple(map(session.vocabulary.label, ids)))
    return list(found.values())


def preview(
    session: Session, prompt: str, system: str | None, raw: bool, markers_as_text: bool = True
) -> PromptPreview:
    """What a prompt would become; a prompt that cannot run gives its sentence as `problem`, and no exception."""
    try:
        prepared = prepare(session, Request(0, prompt, system, raw, markers_as_text=markers_as_text))
    except WorkbenchError as error:
        return PromptPreview("", (), problem=f"{error.what} {error.fix}".strip())
    return PromptPreview(prepared.text, prepared.tokens, prepared.notes)


def end_tokens(session: Session, raw: bool) -> tuple[EndToken, ...]:
    """The ids that end a run, each with the file that says so. Empty: only the length ends it.

    The union of generation_config.json, config.json and, in a chat, the template's own end of turn: each alone is
    missing or wrong in some models (PRM-25). Absent is not 0.
    """
    found: dict[int, str] = {}
    sources: list[tuple[str, Any]] = [
        ("generation_config.json", getattr(session.generation_config, "eos_token_id", None)),
        ("config.json", getattr(session.model.config.get_text_config(), "eos_token_id", None)),
    ]
    if not raw and session.facts.has_chat_template:
        sources.append(("chat template", _end_of_turn(session)))
    for source, value in sources:
        for token_id in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(token_id, int) and not isinstance(token_id, bool):
                found.setdefault(token_id, source)
    return tuple(EndToken(i, session.vocabulary.label(i), source) for i, source in found.items())


# ---------------------------------------------------------------- raw text


def _raw_ids(session: Session, prompt: str) -> list[int]:
    ids = encode(session.tokenizer, prompt, add_special_tokens=True)
    if not ids and isinstance(session.tokenizer.bos_token_id, int):
        return [session.tokenizer.bos_token_id]
    return ids


def _raw_notes(session: Session, prompt: str) -> list[str]:
    notes = []
    if typed := _typed_markers(session, prompt):
        notes.append(f"The prompt holds {', '.join(typed)} as typed; raw text reads such marks as special tokens.")
    if prompt.endswith(" "):
        # TXT-26: the space becomes a token of its own, which texts hardly ever end with.
        notes.append("The prompt ends in a space: most models write better without it.")
    return notes


# ---------------------------------------------------------------- chat


def _chat_ids(session: Session, prompt: str, system: str | None, markers_as_text: bool) -> tuple[list[int], list[str]]:
    if not session.facts.has_chat_template:
        raise PromptRefused(
            "This model has no chat template, so it knows no chat.", "Switch to raw text (--raw in a command)."
        )
    notes: list[str] = []
    typed = _typed_markers(session, f"{prompt}\n{system or ''}")
    as_text = bool(typed) and markers_as_text
    if typed:
        how = "are read as plain text" if as_text else "are read as special tokens and may end your message early"
        notes.append(f"Typed marks ({', '.join(typed)}) {how}.")
    # A private character that nobody typed keeps a typed marker from being one while the template is filled in.
    gap = next(c for c in map(chr, range(0xE000, 0xF900)) if c not in f"{prompt}{system}") if as_text else ""
    if as_text:
        prompt, system = _broken(prompt, typed, gap), None if system is None else _broken(system, typed, gap)
    try:
        rendered = _render(session, _messages(prompt, system))
    except PromptRefused as refused:
        if not system:
            raise
        # PRM-2: some templates take no system text. It goes before the message, where the person can see it.
        try:
            rendered = _render(session, _messages(f"{system}\n\n{prompt}", None))
        except PromptRefused:
            raise refused from None
        notes.append("This model's template takes no system text, so it was put before your message.")
    if as_text:
        return _encode_in_parts(session, rendered, gap), notes
    # The template has put the special tokens in; adding them again would give a double BOS (PRM-1).
    return encode(session.tokenizer, rendered, add_special_tokens=False), notes


def _messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": system}] if system else []
    return [*messages, {"role": "user", "content": prompt}]


def _render(session: Session, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
    try:
        return session.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=add_generation_prompt
        )
    except Exception as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise PromptRefused(
            "The model's chat template refused: {said}",
            "Change the system text or message, or use raw text.",
            said=said,
        ) from None


def _typed_markers(session: Session, text: str) -> list[str]:
    return [marker for marker in _markers(session) if marker in text]


def _markers(session: Session) -> list[str]:
    added = session.tokenizer.get_added_vocab()
    markers = set(added) | set(session.tokenizer.all_special_tokens)
    return sorted((m for m in markers if m.strip()), key=lambda m: (-len(m), m))


def _broken(text: str, markers: list[str], gap: str) -> str:
    for marker in markers:
        text = text.replace(marker, marker[0] + gap + marker[1:])
    return text


def _encode_in_parts(session: Session, rendered: str, gap: str) -> list[int]:
    """Ids where only the template's own marks are special tokens, and typed ones are text (PRM-23)."""
    tokenizer = session.tokenizer
    markers = _markers(session)
    special = [m for m in markers if tokenizer.convert_tokens_to_ids(m) in session.vocabulary.special]
    ids: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, markers))})", rendered):
        if part in markers:
            ids.append(tokenizer.convert_tokens_to_ids(part))
        elif part:
            for marker in special:
                part = part.replace(marker[0] + gap + marker[1:], marker)
            # What is left are added tokens that are not special ("<think>"): the library would still see them.
            for text in part.split(gap):
                ids += encode(tokenizer, text, add_special_tokens=False, split_special_tokens=True)
    return ids


def _end_of_turn(session: Session) -> int | None:
    """The special token that the template writes after an assistant's message."""
    said = "Quince 4711"  # nothing that a template says by itself
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": said}]
    try:
        rendered = _render(session, messages, add_generation_prompt=False)
    except PromptRefused:
        return None
    if (at := rendered.rfind(said)) < 0:  # the template writes it another way: what comes after it is not known
        return None
    after = rendered[at + len(said) :]
    first = next(_special_in(session, after), None)
    return None if first is None else session.tokenizer.convert_tokens_to_ids(first)


def _special_in(session: Session, text: str) -> Iterator[str]:
    special = [m for m in _markers(session) if session.tokenizer.convert_tokens_to_ids(m) in session.vocabulary.special]
    if special:
        yield from (match[0] for match in re.finditer("|".join(map(re.escape, special)), text))


def _without_surrogates(text: str) -> tuple[str, list[str]]:
    """Halves of a pair are joined; a lone half becomes U+FFFD, since no tokenizer can read it (PRM-8)."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text, []
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    notes = ["The prompt held half a character, which is read as \ufffd."] if "\ufffd" in joined else []
    return joined, notes
