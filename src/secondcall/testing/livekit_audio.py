"""Sound for LiveKit Agents without a room: a voice, a loudspeaker and ears that are driven by code.

A real ``AgentSession`` speaks and is interrupted as in a call: what was played when the caller
broke in is what counts as said. Nothing is heard and no network is used; time is the machine's.
"""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from livekit.agents import AgentSession, tts, utils, vad
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions
from livekit.agents.voice import io
from livekit.agents.voice.transcription.synchronizer import TranscriptSynchronizer
from livekit.rtc import AudioFrame

__all__ = ["FedVAD", "Loudspeaker", "ToneTTS", "connect_audio"]

_SAMPLE_RATE = 8_000
_LOUD = 12_000
_PERIOD = 20


class ToneTTS(tts.TTS[Literal["tone"]]):
    """A voice that says each word as ``seconds_per_word`` of a plain tone; ``said`` keeps what it
    was given to say."""

    def __init__(self, *, seconds_per_word: float = 0.3) -> None:
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=False),
            sample_rate=_SAMPLE_RATE,
            num_channels=1,
        )
        self.seconds_per_word = seconds_per_word
        self.said: list[str] = []

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        """The tone for one text, all of it at once."""
        self.said.append(text)
        return _ToneStream(self, text, conn_options)


class _ToneStream(tts.ChunkedStream):
    def __init__(self, voice: ToneTTS, text: str, conn: APIConnectOptions) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - LiveKit leaves TTS open
            tts=voice, input_text=text, conn_options=conn
        )
        self._seconds = len(text.split()) * voice.seconds_per_word

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        output_emitter.initialize(
            request_id=utils.shortuuid(),
            sample_rate=_SAMPLE_RATE,
            num_channels=1,
            mime_type="audio/pcm",
        )
        output_emitter.push(_tone(self._seconds))
        output_emitter.flush()


class Loudspeaker(io.AudioOutput):
    """Plays in real time and into nothing. ``heard_seconds`` is how long it has played in all, and
    ``playing`` whether it plays now; cleared by an interruption it says how far it came."""

    def __init__(self) -> None:
        super().__init__(
            label="Loudspeaker",
            capabilities=io.AudioOutputCapabilities(pause=False),
            sample_rate=_SAMPLE_RATE,
        )
        self.heard_seconds = 0.0
        self._began = 0.0
        self._pushed = 0.0
        self._over: asyncio.TimerHandle | None = None

    @property
    def playing(self) -> bool:
        """Whether a segment is being played."""
        return self._began > 0.0

    @property
    def played_seconds(self) -> float:
        """How much of the present segment has been played; 0 between segments."""
        return min(self._pushed, time.monotonic() - self._began) if self.playing else 0.0

    async def capture_frame(self, frame: AudioFrame) -> None:
        """Take a frame; the first of a segment begins to play at once."""
        await super().capture_frame(frame)
        if not self.playing:
            self._began = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self._pushed += frame.duration

    def flush(self) -> None:
        """The segment is whole: it is over when it has been played."""
        super().flush()
        if self.playing and self._over is None:
            left = max(0.0, self._pushed - (time.monotonic() - self._began))
            self._over = asyncio.get_running_loop().call_later(left, self._finish, False)

    def clear_buffer(self) -> None:
        """Stop at once."""
        if self.playing:
            self._finish(True)

    def _finish(self, interrupted: bool) -> None:
        if self._over is not None:
            self._over.cancel()
        played = self.played_seconds if interrupted else self._pushed
        self.heard_seconds += played
        self._over, self._began, self._pushed = None, 0.0, 0.0
        self.on_playback_finished(playback_position=played, interrupted=interrupted)


class FedVAD(vad.VAD):
    """Hears that somebody speaks when it is told so; no audio is needed."""

    def __init__(self) -> None:
        super().__init__(capabilities=vad.VADCapabilities(update_interval=0.1))
        self._fed: asyncio.Queue[vad.VADEvent] = asyncio.Queue()

    def start_speech(self, *, seconds: float = 1.0) -> None:
        """Somebody has been speaking for so long, and goes on."""
        self._feed(vad.VADEventType.START_OF_SPEECH, seconds, speaking=True)
        self._feed(vad.VADEventType.INFERENCE_DONE, seconds, speaking=True)

    def end_speech(self, *, seconds: float = 1.0) -> None:
        """Nobody speaks any more."""
        self._feed(vad.VADEventType.END_OF_SPEECH, seconds, speaking=False)

    def stream(self) -> vad.VADStream:
        """The stream that the session listens to."""
        return _FedStream(self, self._fed)

    def _feed(self, kind: vad.VADEventType, seconds: float, *, speaking: bool) -> None:
        self._fed.put_nowait(
            vad.VADEvent(
                type=kind,
                samples_index=0,
                timestamp=time.time(),
                speech_duration=seconds if speaking else 0.0,
                silence_duration=0.0 if speaking else seconds,
                probability=1.0 if speaking else 0.0,
                speaking=speaking,
                raw_accumulated_speech=seconds if speaking else 0.0,
                raw_accumulated_silence=0.0 if speaking else seconds,
            )
        )


class _FedStream(vad.VADStream):
    def __init__(self, owner: FedVAD, events: asyncio.Queue[vad.VADEvent]) -> None:
        super().__init__(owner)
        self._events = events

    async def _main_task(self) -> None:
        while True:
            self._event_ch.send_nowait(await self._events.get())


def connect_audio(session: AgentSession[object], speaker: Loudspeaker) -> TranscriptSynchronizer:
    """Let the session speak through ``speaker``, with its text kept in step as a room would; before
    ``session.start``. Close what it gives after the session. Without ``aec_warmup_duration=None``
    a session lets nobody interrupt its first seconds."""
    synchronizer = TranscriptSynchronizer(next_in_chain_audio=speaker, next_in_chain_text=None)
    session.output.audio = synchronizer.audio_output
    session.output.transcription = synchronizer.text_output
    return synchronizer


def _tone(seconds: float) -> bytes:
    loud = _LOUD.to_bytes(2, "little", signed=True)
    soft = (-_LOUD).to_bytes(2, "little", signed=True)
    wave = loud * (_PERIOD // 2) + soft * (_PERIOD // 2)
    return wave * max(1, round(seconds * _SAMPLE_RATE / _PERIOD))
