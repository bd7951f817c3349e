"""The base of everything a study file can set: frozen, and strict about unknown keys."""

from pydantic import BaseModel, ConfigDict


class Params(BaseModel):
    """Parameters of a driver, as one table of the study file.

    Subclasses add fields with the types of ``tunnelmark.model.quantity``. A scalar field may be
    given as a list in the study file: the study then varies it (one point per value).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)
