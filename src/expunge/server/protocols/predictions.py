"""Predictions: MLflow's scoring protocol, and the Open Inference Protocol V2."""

import io
import math
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse

from ... import __version__
from ...errors import ExpungeError, InvalidInput
from ...exact.arrays import Floats
from ..access import Who, needs, service_of
from ..bodies import media_type, parsed, table_of_columns, table_of_rows
from ..problems import Problem, problem_of
from ..service import Service
from ..unpacked import check_parquet

router = APIRouter(tags=["predictions"])
Predict = needs("predict")

_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
_PARQUET = ("application/vnd.apache.parquet", "application/x-parquet")


# MLflow


@router.get("/ping", response_class=PlainTextResponse)
@router.get("/health", response_class=PlainTextResponse)
def ping() -> str:
    """Whether predictions are made."""
    return "\n"


@router.get("/version", response_class=PlainTextResponse)
def version() -> str:
    """The version of this package."""
    return __version__


@router.post("/invocations", openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}})
async def invocations(request: Request, who: Annotated[Who, Predict]) -> dict[str, Any]:
    """Predict rows: JSON with one of dataframe_split, dataframe_records, instances and inputs, or CSV, or Parquet."""
    kind, raw = media_type(request), await request.body()
    if kind == "application/json":
        return await run_in_threadpool(_scored, service_of(request), lambda s: _rows_of(parsed(raw), s))
    if kind == "text/csv":
        return await run_in_threadpool(_scored, service_of(request), lambda s: _read(pa.csv.read_csv, raw))
    if kind in _PARQUET:
        return await run_in_threadpool(_scored, service_of(request), lambda s: _parquet(raw, s))
    raise Problem(415, "wrong-type", "rows come as application/json, text/csv or application/vnd.apache.parquet")


def _scored(service: Service, rows: Any) -> dict[str, Any]:
    return {"predictions": _numbers(_predicted(service, rows(service)))}


def _predicted(service: Service, data: Any) -> Floats:
    count = len(data)
    if count > service.options.most_rows:
        raise InvalidInput(f"at most {service.options.most_rows:,} rows are predicted at once, got {count:,}")
    if not count:
        return np.empty(0)
    return service.vault.predict(data)


def _numbers(values: Floats) -> list[Any]:
    """Predictions as JSON takes them: a number that is beyond floats is null."""
    if np.isfinite(values).all():
        found: list[Any] = values.tolist()
        return found
    if values.ndim > 1:
        return [_numbers(row) for row in values]
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _parquet(raw: bytes, service: Service) -> Any:
    check_parquet(io.BytesIO(raw), service.options.most_rows)
    return _read(pa.parquet.read_table, raw)


def _read(reader: Any, raw: bytes) -> Any:
    try:
        return reader(io.BytesIO(raw))
    except (pa.ArrowException, OSError, ValueError):
        raise InvalidInput("the body cannot be read as the table that it says it is") from None


def _rows_of(found: Any, service: Service) -> Any:
    """Rows of one of MLflow's four JSON forms: a table where columns are named, else an array."""
    given = [form for form in _FORMS if isinstance(found, dict) and form in found]
    if len(given) != 1:
        raise InvalidInput(f"the body must be an object with exactly one of {', '.join(_FORMS)}")
    (form,), value = given, found[given[0]]
    if form == "dataframe_split":
        columns, data = (value.get("columns"), value.get("data")) if isinstance(value, dict) else (None, None)
        if not isinstance(columns, list) or not isinstance(data, list) or not _is_table(data, len(columns)):
            raise InvalidInput("dataframe_split must have columns, and data with as many cells in each row")
        return table_of_columns({str(name): [row[k] for row in data] for k, name in enumerate(columns)})
    if isinstance(value, dict):  # columns by name
        return table_of_columns(
            {name: column if isinstance(column, list) else [column] for name, column in value.items()}
        )
    if not isinstance(value, list):
        raise InvalidInput(f"{form} must be a list of rows")
    if form == "dataframe_records" or (value and all(isinstance(row, dict) for row in value)):
        return table_of_rows(value)
    return _array(value, len(service.vault.inputs))


def _is_table(data: list[Any], width: int) -> bool:
    return all(isinstance(row, list) and len(row) == width for row in data)


def _array(rows: list[Any], width: int) -> Floats:
    try:
        found = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("rows must be lists of numbers, all of one length") from None
    if found.ndim == 1 and found.size in (0, width):
        found = found.reshape(-1, width)
    if found.ndim != 2 or found.shape[1] != width:
        raise InvalidInput(f"each row must have {width} numbers, the inputs in the order of the status")
    return found


# The Open Inference Protocol V2

v2 = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])


@v2.get("")
def server() -> dict[str, Any]:
    """What this server is."""
    return {"name": "expunge", "version": __version__, "extensions": []}


@v2.get("/health/live")
def live() -> dict[str, bool]:
    """Whether the process answers."""
    return {"live": True}


@v2.get("/health/ready")
def ready(request: Request) -> dict[str, bool]:
    """Whether predictions are made."""
    _check_ready(service_of(request))
    return {"ready": True}


@v2.get("/models/{name}", response_model=None)
@v2.get("/models/{name}/versions/{number}", response_model=None)
def model(request: Request, name: str, who: Annotated[Who, Predict], number: str | None = None) -> Response:
    """What the model takes and gives: one tensor per column."""
    service = service_of(request)
    if (refusal := _other(service, name, number)) is not None:
        return refusal
    status = service.vault.status()
    inputs = [{"name": column, "datatype": "FP64", "shape": [-1]} for column in status.columns]
    outputs = [{"name": "predict", "datatype": "FP64", "shape": _shape(-1, len(status.targets))}]
    about = {"name": name, "versions": [str(_version(service))], "platform": "expunge"}
    return JSONResponse({**about, "inputs": inputs, "outputs": outputs})


@v2.get("/models/{name}/ready", response_model=None)
@v2.get("/models/{name}/versions/{number}/ready", response_model=None)
def model_ready(request: Request, name: str, number: str | None = None) -> Response:
    """Whether this model predicts."""
    service = service_of(request)
    if (refusal := _other(service, name, number)) is not None:
        return refusal
    _check_ready(service)
    return JSONResponse({"name": name, "ready": True})


@v2.post(
    "/models/{name}/infer",
    response_model=None,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}},
)
@v2.post(
    "/models/{name}/versions/{number}/infer",
    response_model=None,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}},
)
async def infer(request: Request, name: str, who: Annotated[Who, Predict], number: str | None = None) -> Response:
    """Predict rows, given as one tensor per column, or one of shape (n, d) with all inputs."""
    service = service_of(request)
    if (refusal := _other(service, name, number)) is not None:
        return refusal
    if "inference-header-content-length" in request.headers:
        return _refused(400, "binary tensors are not taken: send JSON")
    raw = await request.body()
    try:
        found = await run_in_threadpool(parsed, raw)
        predicted = await run_in_threadpool(lambda: _predicted(service, _tensors(found, service)))
    except (ExpungeError, Problem) as error:
        problem = problem_of(error)
        return _refused(400 if problem.status == 422 else problem.status, problem.detail)
    answer = {"model_name": name, "model_version": str(_version(service))}
    if isinstance(found.get("id"), str):
        answer["id"] = found["id"].encode(errors="replace").decode()  # half of a pair cannot be sent
    output = {
        "name": "predict",
        "shape": list(predicted.shape),
        "datatype": "FP64",
        "data": _numbers(predicted.ravel()),
    }
    return JSONResponse({**answer, "outputs": [output]})


def _tensors(found: Any, service: Service) -> Any:
    inputs = found.get("inputs") if isinstance(found, dict) else None
    if not isinstance(inputs, list) or not inputs or not all(isinstance(one, dict) for one in inputs):
        raise InvalidInput("inputs must be a list of tensors")
    columns = dict[str, list[Any]]()
    for one in inputs:
        name, data, shape = one.get("name"), one.get("data"), one.get("shape")
        if not isinstance(name, str) or not isinstance(data, list) or not isinstance(shape, list):
            raise InvalidInput("a tensor must have name, shape, datatype and data")
        if name in columns:
            raise InvalidInput("two tensors have one name")
        columns[name] = data
    d = len(service.vault.inputs)
    if len(inputs) == 1 and len(inputs[0]["shape"]) == 2 and inputs[0]["shape"][1] == d:
        return _flat(inputs[0]["data"], d)
    return table_of_columns({name: _flattened(data) for name, data in columns.items()})


def _flattened(data: list[Any]) -> list[Any]:
    """The cells of a column, of shape (n,) or (n, 1), flat or nested."""
    return [cell[0] if isinstance(cell, list) and len(cell) == 1 else cell for cell in data]


def _flat(data: list[Any], width: int) -> Floats:
    if data and isinstance(data[0], list):
        return _array(data, width)
    if len(data) % width:
        raise InvalidInput("the tensor has not as many numbers as its shape says")
    return _array([data[start : start + width] for start in range(0, len(data), width)], width)


def _shape(rows: int, targets: int) -> list[int]:
    return [rows] if targets == 1 else [rows, targets]


def _version(service: Service) -> int:
    """The number of the newest request: the model changes with each."""
    return service.vault.newest


def _other(service: Service, name: str, number: str | None) -> Response | None:
    """A refusal if this is not our model."""
    known = service.vault.places.vault.stem
    if name != known:
        return _refused(404, f"there is no such model; it is called {known}")
    if number is not None and number != str(_version(service)):
        return _refused(404, "there is no such version: only the newest model is there")
    return None


def _refused(status: int, detail: str) -> Response:
    return JSONResponse({"error": detail}, status)


def _check_ready(service: Service) -> None:
    if service.draining:
        raise Problem(503, "draining", "the service is being stopped")
