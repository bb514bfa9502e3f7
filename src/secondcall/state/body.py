"""A state to the bytes that a store keeps, and back. Pure.

The body is JSON. Keys that this release does not know are written again as they were read, so that
a deploy can be rolled back. ``FORMAT`` numbers the form; an older one is brought up step by step by
``UPGRADES``, a newer one is refused.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from secondcall.checks import from_us, to_us
from secondcall.errors import InvalidValue, SchemaTooNew, SecondcallError, StoreCorrupt, TooLarge
from secondcall.state.agent_state import AgentState
from secondcall.state.codec import decode, encode, freeze, is_model, keep_unknown, plain
from secondcall.state.known import Workflows
from secondcall.state.moves import Frame, deadline
from secondcall.state.slots import accept

if TYPE_CHECKING:
    from secondcall.abc_state import StateKey, StoredState
    from secondcall.state.workflow import Workflow
    from secondcall.types import JsonValue, Trust

__all__ = [
    "FORMAT",
    "MAX_STATE_BYTES",
    "UPGRADES",
    "Fields",
    "FieldsMigration",
    "decode_state",
    "encode_state",
    "fresh_state",
    "same_body",
]

F = TypeVar("F")

FORMAT = 1
MAX_STATE_BYTES = 262_144

UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From the body of one format to that of the next."""

FieldsMigration = Callable[[dict[str, Any]], Mapping[str, Any]]
"""From the fields of one version, as plain values by name, to those of the next."""

_FRAME_KEYS = frozenset({"workflow", "version", "step", "slots", "entered_us", "trail", "timer"})
_KEYS = frozenset({"format", "frames", "fields"})


@dataclass(frozen=True, slots=True)
class Fields(Generic[F]):
    """How the host's own fields are read: their class, its version, and migrations from older ones.

    ``kind`` ``None``: a read-only mapping. Classes need a default for each field, so that a state
    can begin; ``default`` makes the first fields where they have not.
    """

    kind: type[F] | None = None
    version: int = field(default=1, kw_only=True)
    migrations: Mapping[int, FieldsMigration] = field(
        default_factory=dict[int, FieldsMigration], kw_only=True
    )
    default: Callable[[], F] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        kind = cast("object", self.kind)
        if kind is not None and not (
            isinstance(kind, type)
            and (dataclasses.is_dataclass(kind) or is_model(cast("type", kind)))
        ):
            raise InvalidValue(f"fields must be a dataclass or a pydantic model, not {kind!r}")
        for version in self.migrations:
            if not 0 < version < self.version:
                raise InvalidValue(f"a migration of fields leads from version {version!r}")

    def first(self) -> F:
        """The fields that a state begins with. Raises: ``InvalidValue``."""
        if self.default is not None:
            return copy.deepcopy(self.default())  # so that two states never share a part
        if self.kind is None:
            return cast("F", MappingProxyType({}))
        try:
            return self.kind()
        except (TypeError, ValueError):
            raise InvalidValue(
                f"{self.kind.__name__} cannot begin empty; give its fields defaults, or a default "
                "to session.state.of(...)"
            ) from None

    def read(self, raw: Any, version: int) -> tuple[F, Any]:
        """The fields in their class, and the JSON to keep unknown keys from (``None`` after a
        migration). Raises: ``InvalidValue``, ``SchemaTooNew``, ``StoreCorrupt``."""
        values = decode(raw)
        if not isinstance(values, dict):
            raise StoreCorrupt("the stored fields are not an object")
        named = cast("dict[str, Any]", values)
        if self.kind is None:
            return cast("F", freeze(named)), None
        if version > self.version:
            raise SchemaTooNew(
                f"the fields are in version {version} of {self.kind.__name__}, newer than version "
                f"{self.version} here; deploy the newer release"
            )
        migrated = version < self.version
        for older in range(version, self.version):
            if older not in self.migrations:
                raise InvalidValue(
                    f"the fields are in version {older} of {self.kind.__name__}; give "
                    f"session.state.of(..., migrations={{{older}: ...}})"
                )
            named = self._migrated(older, cast("dict[str, Any]", plain(named)))
        return self._made(named), None if migrated else raw

    def _migrated(self, older: int, named: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(self.migrations[older](named))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidValue(
                f"the migration of fields from version {older} failed ({type(error).__name__}); "
                "what is stored stays as it is"
            ) from error

    def _made(self, named: Mapping[str, Any]) -> F:
        kind: Any = self.kind
        if is_model(kind):
            takes_all = kind.model_config.get("extra") == "allow"
            known = {
                name: plain(part)
                for name, part in named.items()
                if takes_all or name in kind.model_fields
            }
            try:
                return cast("F", kind.model_validate(known, by_name=True))
            except ValueError as error:
                raise InvalidValue(
                    f"the stored fields do not make a {kind.__name__} ({type(error).__name__}); "
                    "give a changed class a new version and a migration"
                ) from None
        names = {one.name for one in dataclasses.fields(kind) if one.init}
        known = {name: part for name, part in named.items() if name in names}
        return cast("F", accept("fields", kind, known, frozen=False))


def fresh_state(
    key: StateKey, fields: Fields[F], *, now: datetime, trust: Trust, known: Workflows
) -> AgentState[F]:
    """The state that an absent one is changed from."""
    return AgentState(
        tenant_id=key.tenant_id,
        user_id=key.user_id,
        session_id=key.session_id,
        fields=fields.first(),
        now=now,
        trust=trust,
        known=known,
    )


def encode_state(state: AgentState[Any], fields: Fields[Any], *, max_bytes: int) -> bytes:
    """The bytes of a state. Raises: ``InvalidValue``, ``TooLarge`` naming what is largest."""
    body: dict[str, Any] = dict(state.extra)
    body["format"] = FORMAT
    read = () if state.origin is None else state.origin[1].frames
    body["frames"] = [
        dict(frame.stored)
        if frame.stored is not None and any(frame is one for one in read)
        else _frame_json(frame, state.known)
        for frame in state.frames
    ]
    written = _fields_json(state.fields)
    _check_fields(written, fields)
    if written or state.stored_fields:
        old = cast("dict[str, Any]", state.stored_fields or {})
        kept = {key: part for key, part in old.items() if key not in written}
        body["fields"] = {
            **kept, **{key: keep_unknown(old.get(key), part) for key, part in written.items()}
        }  # fmt: skip
        if fields.kind is not None:
            body["fields_version"] = fields.version
    encoded = _dumped(body)
    if len(encoded) > max_bytes:
        what, size = _largest(body)
        raise TooLarge(
            f"the state has {len(encoded):,} bytes, at most {max_bytes:,} are accepted; {what} "
            f"alone has {size:,}: keep it elsewhere and a reference here"
        )
    return encoded


def same_body(one: bytes, other: bytes) -> bool:
    """Whether two bodies say the same, however they are written."""
    return one == other or json.loads(one) == json.loads(other)


def decode_state(
    stored: StoredState,
    fields: Fields[F],
    *,
    now: datetime,
    trust: Trust,
    known: Workflows,
    preferences: Mapping[str, JsonValue] | None = None,
) -> AgentState[F]:
    """The state in stored bytes, once every timer up to ``now`` has gone off.

    Workflows that are not known keep what was stored, apart from a timer of the innermost.

    Raises: ``StoreCorrupt``, ``SchemaTooNew``, ``InvalidValue`` when fields or slots no longer fit
    their classes.
    """
    body = _parsed(stored)
    updated_at = from_us(stored.updated_us)
    now = max(now, updated_at)
    try:
        frames = tuple(_frame(raw, known) for raw in body.get("frames", []))
        raw_fields: Any = body.get("fields", {})
        version = _whole(body.get("fields_version", 1))
        read = fields.read(raw_fields, version) if raw_fields else None
    except SecondcallError:
        raise
    except _DAMAGED as error:
        raise _corrupt(stored, type(error).__name__) from None
    made, kept = (fields.first(), None) if read is None else read
    state = AgentState(
        tenant_id=stored.key.tenant_id,
        user_id=stored.key.user_id,
        session_id=stored.key.session_id,
        fields=made,
        now=now,
        version=stored.version,
        updated_at=updated_at,
        updated_by=stored.updated_by,
        expires_at=None if stored.expires_us is None else from_us(stored.expires_us),
        frames=frames,
        trust=trust,
        known=known,
        preferences={} if preferences is None else preferences,
        extra={name: part for name, part in body.items() if name not in _KEYS},
        stored_fields=kept,
    )
    state = dataclasses.replace(state, origin=(stored, state))
    if all(known.at(one.workflow, one.version, one.step) is not None for one in frames):
        return state.run_out()
    try:
        return dataclasses.replace(state, frames=_by_stored_timer(frames, now))
    except _DAMAGED as error:
        raise _corrupt(stored, type(error).__name__) from None


_DAMAGED = (KeyError, TypeError, AttributeError, OverflowError, ValueError, RecursionError)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _check_fields(written: dict[str, Any], fields: Fields[Any]) -> None:
    """Read what is to be written, so that nothing is ever stored that cannot be loaded."""
    if fields.kind is None or not written:
        return
    try:
        fields.read(written, fields.version)
    except StoreCorrupt as error:
        raise InvalidValue(f"the fields would not come back: {error}") from None


def _parsed(stored: StoredState) -> dict[str, Any]:
    if stored.schema > FORMAT:
        raise SchemaTooNew(
            f"the state is in format {stored.schema}, this release knows up to {FORMAT}; upgrade "
            "secondcall"
        )
    try:
        body: object = _READER.decode(stored.body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise _corrupt(stored, type(error).__name__) from None
    if not isinstance(body, dict):
        raise _corrupt(stored, "not an object")
    found = cast("dict[str, Any]", body)
    for older in range(stored.schema, FORMAT):
        found = UPGRADES[older](found)
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


_READER = json.JSONDecoder(parse_constant=_no_number)
_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _corrupt(stored: StoredState, why: str) -> StoreCorrupt:
    whose = "the user-wide state" if stored.key.session_id is None else (
        f"the state of session {stored.key.session_id!r}"
    )  # fmt: skip
    return StoreCorrupt(
        f"{whose} of user {stored.key.user_id!r} cannot be read at version {stored.version} "
        f"({why}); its history can, and delete() lets it begin anew"
    )


def _frame(raw: dict[str, Any], known: Workflows) -> Frame:
    name, version, step = raw["workflow"], _whole(raw["version"]), raw["step"]
    if not (isinstance(name, str) and isinstance(step, str)):
        raise TypeError
    slots: Mapping[str, object] = {key: decode(part) for key, part in raw["slots"].items()}
    version, step, slots = known.migrate(name, version, step, _typed(slots, name, version, known))
    trail = raw.get("trail", [])
    extra = {key: part for key, part in raw.items() if key not in _FRAME_KEYS}
    if "timer" in raw and known.at(name, version, step) is None:
        extra["timer"] = raw["timer"]
    return Frame(
        workflow=name,
        version=version,
        step=step,
        slots=MappingProxyType(dict(slots)),
        entered_at=from_us(raw["entered_us"]),
        trail=tuple(str(one) for one in trail),
        extra=extra,
        stored=raw if version == raw["version"] else None,
    )


def _typed(
    slots: Mapping[str, object], name: str, version: int, known: Workflows
) -> Mapping[str, object]:
    workflow = known.get(name, version)
    if workflow is None:
        return {key: freeze(part) for key, part in slots.items()}
    return {
        key: accept(f"the stored slots.{key}", workflow.slots[key].type, part)
        if key in workflow.slots
        else freeze(part)
        for key, part in slots.items()
    }


def _by_stored_timer(frames: tuple[Frame, ...], now: datetime) -> tuple[Frame, ...]:
    """The frames once the timer of the innermost went off, as it was written beside it: its
    workflow, which would say more, is not known here."""
    if not frames:
        return frames
    frame = frames[-1]
    timer: Any = frame.extra.get("timer")
    if not timer or from_us(timer["due_us"]) > now:
        return frames
    extra = {key: part for key, part in frame.extra.items() if key != "timer"}
    moved = dataclasses.replace(
        frame, step=str(timer["then"]), entered_at=from_us(timer["due_us"]), extra=extra
    )
    return (*frames[:-1], moved)


def _frame_json(frame: Frame, known: Workflows) -> dict[str, Any]:
    """A frame's JSON; of one that is not understood here, what was read: a newer process goes on
    from there, with its timers.

    Raises: ``InvalidValue`` for a frame that no verb of a state gives.
    """
    workflow = known.at(frame.workflow, frame.version, frame.step)
    if workflow is None and frame.stored is not None:
        unknown = known.get(frame.workflow, frame.version) is None
        if unknown or frame.step == frame.stored["step"]:
            return dict(frame.stored)
    if workflow is None:
        raise InvalidValue(
            f"the state is at {frame.step!r} of workflow {frame.workflow!r} version "
            f"{frame.version}, which is not declared; change states by their verbs"
        )
    before: Mapping[str, Any] = {} if frame.stored is None else frame.stored["slots"]
    raw: dict[str, Any] = {
        "workflow": frame.workflow,
        "version": frame.version,
        "step": frame.step,
        "slots": {
            name: keep_unknown(before.get(name), encode(f"slots.{name}", part))
            for name, part in frame.slots.items()
        },
        "entered_us": to_us("entered_at", frame.entered_at),
    }
    if frame.trail:
        raw["trail"] = list(frame.trail)
    raw |= frame.extra
    _check_slots(raw["slots"], frame, workflow)
    due = deadline(frame, known.find)
    if due is not None:
        raw["timer"] = {"due_us": to_us("due", due), "then": workflow.steps[frame.step].then}
    return raw


def _check_slots(written: dict[str, Any], frame: Frame, workflow: Workflow) -> None:
    """As ``_check_fields``: slots are read as they are written, and those required are there."""
    for name, raw in written.items():
        if name in workflow.slots:
            _read_back(f"slots.{name}", workflow.slots[name].type, raw)
    lacking = [one for one in workflow.steps[frame.step].requires if one not in written]
    if lacking:
        raise InvalidValue(
            f"the state is at {frame.step!r} without {', '.join(map(repr, lacking))}; change "
            "states by their verbs"
        )


def _read_back(path: str, declared: Any, raw: Any) -> None:
    try:
        accept(path, declared, decode(raw))
    except StoreCorrupt as error:
        raise InvalidValue(f"{path} would not come back: {error}") from None


def _fields_json(fields: Any) -> dict[str, Any]:
    raw = encode("fields", fields)
    if isinstance(fields, Mapping):
        if "$" in raw:
            raise InvalidValue("the names of fields must be text other than '$'")
        return raw
    return raw["v"]


def _largest(body: Mapping[str, Any]) -> tuple[str, int]:
    sizes = {f"fields.{name}": len(_dumped(part)) for name, part in body.get("fields", {}).items()}
    for frame in body["frames"]:
        sizes |= {f"slots.{name}": len(_dumped(part)) for name, part in frame["slots"].items()}
    sizes["what a newer release wrote"] = 0
    what = max(sizes, key=lambda name: sizes[name])
    return what, sizes[what]


def _dumped(value: Any) -> bytes:
    return _WRITER.encode(value).encode()
