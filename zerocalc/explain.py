"""Moved to zerocalc.questions.explain; this shim goes once nothing imports it."""

from zerocalc.questions.explain import *  # noqa: F403
