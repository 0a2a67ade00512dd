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
from ...tables import Upload
from ..auth import Principal, get_service, require_scope
from ..bodies import SUFFIXES, format_numbers, media_type, parse_json, read_array, without_collector
from ..problems import Problem, to_problem
from ..service import Service

router = APIRouter(tags=["predictions"])
Predict = require_scope("predict")

_JSON_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
_FILE_SUFFIXES = {kind: form for kind, form in SUFFIXES.items() if form in (".csv", ".parquet")}


# MLflow


@router.get("/ping", response_class=PlainTextResponse)
@router.get("/health", response_class=PlainTextResponse)
async def ping() -> str:
    """Whether predictions are made."""
    return "\n"


@router.get("/version", response_class=PlainTextResponse)
async def get_version() -> str:
    """The version of this package."""
    return __version__


@router.post(
    "/invocations",
    response_model=dict[str, Any],
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}},
)
async def invoke(request: Request, who: Annotated[Principal, Predict]) -> Response:
    """Predict rows: JSON with one of dataframe_split, dataframe_records, instances and inputs, or CSV, or Parquet."""
    kind, raw = media_type(request), await request.body()
    if kind == "application/json":
        return await run_in_threadpool(_score_rows, request, len(raw), lambda s: _read_rows(_parse_json(raw, s), s))
    if (form := _FILE_SUFFIXES.get(kind)) is not None:
        return await run_in_threadpool(_score_rows, request, len(raw), lambda s: Upload(raw, s.options.max_rows, form))
    raise Problem(415, "wrong-type", "rows come as application/json, text/csv or application/vnd.apache.parquet")


def _score_rows(request: Request, size: int, read_rows: Any) -> Response:
    """Answer with predictions, all of which is done here: what the event loop does keeps everybody waiting."""
    with without_collector(size):
        return _json_response(
            b'{"predictions":', format_numbers(_predict_rows(request, read_rows(get_service(request)))), b"}"
        )


def _json_response(*parts: bytes) -> Response:
    return Response(b"".join(parts), media_type="application/json")


def _parse_json(raw: bytes, service: Service) -> Any:
    return parse_json(raw, max_rows=service.options.max_rows)


def _predict_rows(request: Request, data: Any) -> Floats:
    """Predict rows; how many lie outside the bounds is left with the request, for a header and a counter."""
    service = get_service(request)
    if isinstance(data, np.ndarray) and len(data) > service.options.max_rows:
        raise InvalidInput(f"a body has at most {service.options.max_rows:,} rows, got {len(data):,}")
    if data.data in ([], {}) if isinstance(data, Upload) else not len(data):
        return np.empty(0)
    found = service.vault.predictions(data, ids=False)
    request.state.outside_rows = int(found.outside.sum())
    return found.values


def _read_rows(body: Any, service: Service) -> Any:
    """Rows of one of MLflow's four JSON forms: a table where columns are named, else an array."""
    given = [form for form in _JSON_FORMS if isinstance(body, dict) and form in body]
    if len(given) != 1:
        raise InvalidInput(f"the body must be an object with exactly one of {', '.join(_JSON_FORMS)}")
    (form,), value, most = given, body[given[0]], service.options.max_rows
    if form == "dataframe_split":
        columns, data = (value.get("columns"), value.get("data")) if isinstance(value, dict) else (None, None)
        if not isinstance(columns, list) or not isinstance(data, list) or not _is_table(data, len(columns)):
            raise InvalidInput("dataframe_split must have columns, and data with as many cells in each row")
        if repeated := len(columns) - len(set(map(str, columns))):
            raise InvalidInput(f"dataframe_split names columns more than once: {repeated:,} of {len(columns):,}")
        return Upload({str(name): [row[k] for row in data] for k, name in enumerate(columns)}, most)
    if isinstance(value, dict):  # columns by name
        return Upload({name: column if isinstance(column, list) else [column] for name, column in value.items()}, most)
    if not isinstance(value, list):
        raise InvalidInput(f"{form} must be a list of rows")
    if form == "dataframe_records" or (value and all(isinstance(row, dict) for row in value)):
        return Upload(value, most)
    return _build_array(value, len(service.vault.inputs))


def _is_table(data: list[Any], width: int) -> bool:
    return all(isinstance(row, list) and len(row) == width for row in data)


def _build_array(rows: list[Any], width: int) -> Floats:
    try:
        found = read_array(rows)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("rows must be lists of numbers, all of one length") from None
    if found.ndim == 1 and found.size in (0, width):
        found = found.reshape(-1, width)
    if found.ndim != 2 or found.shape[1] != width:
        raise InvalidInput(f"each row must have {width} numbers, the inputs in the order of the status")
    return found


# The Open Inference Protocol V2

v2_router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])


@v2_router.get("")
def describe_server() -> dict[str, Any]:
    """What this server is."""
    return {"name": "expunge", "version": __version__, "extensions": []}


@v2_router.get("/health/live")
async def check_live() -> dict[str, bool]:
    """Whether the process answers."""
    return {"live": True}


@v2_router.get("/health/ready")
def check_ready(request: Request) -> dict[str, bool]:
    """Whether predictions are made."""
    _refuse_while_draining(get_service(request))
    return {"ready": True}


@v2_router.get("/models/{name}", response_model=None)
@v2_router.get("/models/{name}/versions/{number}", response_model=None)
def describe_model(
    request: Request, name: str, who: Annotated[Principal, Predict], number: str | None = None
) -> Response:
    """What the model takes and gives: one tensor per column."""
    service = get_service(request)
    if (refusal := _refuse_other_model(service, name, number)) is not None:
        return refusal
    status = service.vault.status()
    inputs = [{"name": column, "datatype": "FP64", "shape": [-1]} for column in status.columns]
    outputs = [{"name": "predict", "datatype": "FP64", "shape": _tensor_shape(-1, len(status.targets))}]
    about = {"name": name, "versions": [str(_model_version(service))], "platform": "expunge"}
    return JSONResponse({**about, "inputs": inputs, "outputs": outputs})


@v2_router.get("/models/{name}/ready", response_model=None)
def check_model_ready(request: Request, name: str) -> Response:
    """Whether this model predicts."""
    return _answer_ready(request, name, None)


@v2_router.get("/models/{name}/versions/{number}/ready", response_model=None)
def check_version_ready(request: Request, name: str, number: str, who: Annotated[Principal, Predict]) -> Response:
    """Whether this version of the model predicts. Without a token, callers could count requests of the vault."""
    return _answer_ready(request, name, number)


def _answer_ready(request: Request, name: str, number: str | None) -> Response:
    service = get_service(request)
    if (refusal := _refuse_other_model(service, name, number)) is not None:
        return refusal
    _refuse_while_draining(service)
    return JSONResponse({"name": name, "ready": True})


@v2_router.post(
    "/models/{name}/infer",
    response_model=None,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}},
)
@v2_router.post(
    "/models/{name}/versions/{number}/infer",
    response_model=None,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}},
)
async def infer(request: Request, name: str, who: Annotated[Principal, Predict], number: str | None = None) -> Response:
    """Predict rows, given as one tensor per column, or one of shape (n, d) with all inputs."""
    service = get_service(request)
    if (refusal := _refuse_other_model(service, name, number)) is not None:
        return refusal
    if "inference-header-content-length" in request.headers:
        return _error_response(400, "binary tensors are not taken: send JSON")
    raw = await request.body()
    try:
        return await run_in_threadpool(_infer_rows, request, name, raw)
    except (ExpungeError, Problem) as error:
        problem = to_problem(error)
        return _error_response(400 if problem.status == 422 else problem.status, problem.detail)


def _infer_rows(request: Request, name: str, raw: bytes) -> Response:
    service = get_service(request)
    with without_collector(len(raw)):
        found = _parse_json(raw, service)
        predicted = _predict_rows(request, _read_tensors(found, service))
    answer = {"model_name": name, "model_version": str(_model_version(service))}
    if isinstance(found.get("id"), str):
        answer["id"] = found["id"].encode(errors="replace").decode()  # half of a pair cannot be sent
    output = {"name": "predict", "shape": list(predicted.shape), "datatype": "FP64"}
    head, about = json.dumps(answer)[:-1], json.dumps(output)[:-1]
    data = format_numbers(predicted.ravel())
    return _json_response(head.encode(), b',"outputs":[', about.encode(), b',"data":', data, b"}]}")


def _read_tensors(body: Any, service: Service) -> Any:
    inputs = body.get("inputs") if isinstance(body, dict) else None
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
        return _reshape_tensor(inputs[0]["data"], d)
    return Upload({name: _flatten_column(data) for name, data in columns.items()}, service.options.max_rows)


def _flatten_column(data: list[Any]) -> list[Any]:
    """The cells of a column, of shape (n,) or (n, 1), flat or nested."""
    return [cell[0] if isinstance(cell, list) and len(cell) == 1 else cell for cell in data]


def _reshape_tensor(data: list[Any], width: int) -> Floats:
    if data and isinstance(data[0], list):
        return _build_array(data, width)
    if len(data) % width:
        raise InvalidInput("the tensor has not as many numbers as its shape says")
    return _build_array([data[start : start + width] for start in range(0, len(data), width)], width)


def _tensor_shape(rows: int, targets: int) -> list[int]:
    return [rows] if targets == 1 else [rows, targets]


def _model_version(service: Service) -> int:
    """The number of the newest request: the model changes with each."""
    return service.vault.newest


def _refuse_other_model(service: Service, name: str, number: str | None) -> Response | None:
    """A refusal if this is not our model."""
    known = service.vault.places.vault.stem
    if name != known:
        return _error_response(404, f"there is no such model; it is called {known}")
    if number is not None and number != str(_model_version(service)):
        return _error_response(404, "there is no such version: only the newest model is there")
    return None


def _error_response(status: int, detail: str) -> Response:
    return JSONResponse({"error": detail}, status)


def _refuse_while_draining(service: Service) -> None:
    if service.draining:
        raise Problem(503, "draining", "the service is being stopped")
