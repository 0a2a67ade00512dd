"""Predictions: MLflow's scoring protocol, and the Open Inference Protocol V2."""

import json
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse

from ... import __version__
from ...errors import ExpungeError, InvalidInput
from ...exact.arrays import Floats
from ...vault.tables import Body
from ..access import Who, needs, service_of
from ..bodies import SUFFIXES, media_type, parsed
from ..large_json import array_of, numbers, without_collector
from ..problems import Problem, problem_of
from ..service import Service

router = APIRouter(tags=["predictions"])
Predict = needs("predict")

_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
_FILES = {kind: form for kind, form in SUFFIXES.items() if form in (".csv", ".parquet")}


# MLflow


@router.get("/ping", response_class=PlainTextResponse)
@router.get("/health", response_class=PlainTextResponse)
async def ping() -> str:
    """Whether predictions are made."""
    return "\n"


@router.get("/version", response_class=PlainTextResponse)
async def version() -> str:
    """The version of this package."""
    return __version__


@router.post(
    "/invocations",
    response_model=dict[str, Any],
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}},
)
async def invocations(request: Request, who: Annotated[Who, Predict]) -> Response:
    """Predict rows: JSON with one of dataframe_split, dataframe_records, instances and inputs, or CSV, or Parquet."""
    kind, raw = media_type(request), await request.body()
    if kind == "application/json":
        return await run_in_threadpool(_scored, request, len(raw), lambda s: _rows_of(_parsed(raw, s), s))
    if (form := _FILES.get(kind)) is not None:
        return await run_in_threadpool(_scored, request, len(raw), lambda s: Body(raw, s.options.most_rows, form))
    raise Problem(415, "wrong-type", "rows come as application/json, text/csv or application/vnd.apache.parquet")


def _scored(request: Request, size: int, rows: Any) -> Response:
    """Answer with predictions, all of which is done here: what the event loop does keeps everybody waiting."""
    with without_collector(size):
        return _json(b'{"predictions":', numbers(_predicted(request, rows(service_of(request)))), b"}")


def _json(*parts: bytes) -> Response:
    return Response(b"".join(parts), media_type="application/json")


def _parsed(raw: bytes, service: Service) -> Any:
    return parsed(raw, most_rows=service.options.most_rows)


def _predicted(request: Request, data: Any) -> Floats:
    """Predict rows; how many lie outside the bounds is left with the request, for a header and a counter."""
    service = service_of(request)
    if isinstance(data, np.ndarray) and len(data) > service.options.most_rows:
        raise InvalidInput(f"a body has at most {service.options.most_rows:,} rows, got {len(data):,}")
    if data.data in ([], {}) if isinstance(data, Body) else not len(data):
        return np.empty(0)
    found = service.vault.predictions(data, ids=False)
    request.state.outside_rows = int(found.outside.sum())
    return found.values


def _rows_of(found: Any, service: Service) -> Any:
    """Rows of one of MLflow's four JSON forms: a table where columns are named, else an array."""
    given = [form for form in _FORMS if isinstance(found, dict) and form in found]
    if len(given) != 1:
        raise InvalidInput(f"the body must be an object with exactly one of {', '.join(_FORMS)}")
    (form,), value, most = given, found[given[0]], service.options.most_rows
    if form == "dataframe_split":
        columns, data = (value.get("columns"), value.get("data")) if isinstance(value, dict) else (None, None)
        if not isinstance(columns, list) or not isinstance(data, list) or not _is_table(data, len(columns)):
            raise InvalidInput("dataframe_split must have columns, and data with as many cells in each row")
        if repeated := len(columns) - len(set(map(str, columns))):
            raise InvalidInput(f"dataframe_split names columns more than once: {repeated:,} of {len(columns):,}")
        return Body({str(name): [row[k] for row in data] for k, name in enumerate(columns)}, most)
    if isinstance(value, dict):  # columns by name
        return Body({name: column if isinstance(column, list) else [column] for name, column in value.items()}, most)
    if not isinstance(value, list):
        raise InvalidInput(f"{form} must be a list of rows")
    if form == "dataframe_records" or (value and all(isinstance(row, dict) for row in value)):
        return Body(value, most)
    return _array(value, len(service.vault.inputs))


def _is_table(data: list[Any], width: int) -> bool:
    return all(isinstance(row, list) and len(row) == width for row in data)


def _array(rows: list[Any], width: int) -> Floats:
    try:
        found = array_of(rows)
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
async def live() -> dict[str, bool]:
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
def model_ready(request: Request, name: str) -> Response:
    """Whether this model predicts."""
    return _ready(request, name, None)


@v2.get("/models/{name}/versions/{number}/ready", response_model=None)
def version_ready(request: Request, name: str, number: str, who: Annotated[Who, Predict]) -> Response:
    """Whether this version of the model predicts. Without a token, callers could count requests of the vault."""
    return _ready(request, name, number)


def _ready(request: Request, name: str, number: str | None) -> Response:
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
        return await run_in_threadpool(_inferred, request, name, raw)
    except (ExpungeError, Problem) as error:
        problem = problem_of(error)
        return _refused(400 if problem.status == 422 else problem.status, problem.detail)


def _inferred(request: Request, name: str, raw: bytes) -> Response:
    service = service_of(request)
    with without_collector(len(raw)):
        found = _parsed(raw, service)
        predicted = _predicted(request, _tensors(found, service))
    answer = {"model_name": name, "model_version": str(_version(service))}
    if isinstance(found.get("id"), str):
        answer["id"] = found["id"].encode(errors="replace").decode()  # half of a pair cannot be sent
    output = {"name": "predict", "shape": list(predicted.shape), "datatype": "FP64"}
    head, about = json.dumps(answer)[:-1], json.dumps(output)[:-1]
    data = numbers(predicted.ravel())
    return _json(head.encode(), b',"outputs":[', about.encode(), b',"data":', data, b"}]}")


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
    return Body({name: _flattened(data) for name, data in columns.items()}, service.options.most_rows)


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
