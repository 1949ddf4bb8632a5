"""Moved to zerocalc.questions.solve; this shim goes once nothing imports it."""

from zerocalc.questions.solve import *  # noqa: F403
