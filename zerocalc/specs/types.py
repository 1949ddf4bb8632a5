"""The bounds and units that specs share."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from zerocalc.units import MAX_BYTES, MAX_PARAMS

MAX_RANKS = 10**7
MAX_BYTES_PER_PARAM = 1024

Tier = Literal["none", "cpu", "nvme"]


class Unit(NamedTuple):
    """The unit of a number, carried in the field's metadata."""

    name: str


Count = Annotated[int, Field(ge=1, le=MAX_PARAMS)]
OptionalCount = Annotated[int, Field(ge=0, le=MAX_PARAMS)]
Ranks = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES), Unit("byte")]
Rate = Annotated[float, Field(gt=0, le=1e21)]
Tokens15 = Annotated[int, Field(ge=1, le=10**15)]
Tokens = Annotated[int, Field(ge=1, le=10**12)]


def _exact(value: object) -> object:
    return Fraction(str(value)) if isinstance(value, (int, float, str)) else value


BytesPerParam = Annotated[
    Fraction,
    BeforeValidator(_exact),
    Field(ge=0, le=MAX_BYTES_PER_PARAM),
    PlainSerializer(lambda value: int(value) if value.denominator == 1 else float(value)),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_BYTES_PER_PARAM}),
    Unit("byte per parameter"),
]


class Spec(BaseModel):
    """The house rules of every input: frozen, no unknown keys, no silent conversions from NaN."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        defer_build=True,
        arbitrary_types_allowed=True,
    )
