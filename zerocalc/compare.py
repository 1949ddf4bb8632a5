"""Moved to zerocalc.questions.compare; this shim goes once nothing imports it."""

from zerocalc.questions.compare import *  # noqa: F403
