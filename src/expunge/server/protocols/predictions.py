"""Predictions: MLflow's scoring protocol, and the Open Inference Protocol V2.

A route only receives the body and sends the answer. `answer_call` is all that is between the two: it runs in a thread
for a small body, and in a process of its own (`server/bulk.py`) for a large one, with the same result.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from ... import __version__
from ...errors import ExpungeError, InvalidInput
from ...exact.arrays import Floats
from ...tables import Upload
from ...vault import Vault
from ..auth import Principal, get_service, require_scope
from ..bodies import SUFFIXES, format_numbers, media_type, parse_json
from ..problems import Problem, to_problem
from ..service import Service

router = APIRouter(tags=["predictions"])
Predict = require_scope("predict")

_JSON_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
_FILE_SUFFIXES = {kind: form for kind, form in SUFFIXES.items() if form in (".csv", ".parquet")}
_MAX_THREAD_BYTES = 2**18  # of a body that a thread answers: it holds the GIL for some milliseconds
_PIECE_BYTES = 2**16  # of an answer, sent at once


@router.get("/ping", response_class=PlainTextResponse)
@router.get("/health", response_class=PlainTextResponse)
async def ping() -> str:
    """Answer that the process serves predictions."""
    return "\n"


@router.get("/version", response_class=PlainTextResponse)
async def get_version() -> str:
    """Return the version of this package."""
    return __version__


@router.post(
    "/invocations",
    response_model=dict[str, Any],
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {}}}},
)
async def invoke(request: Request, who: Annotated[Principal, Predict]) -> Response:
    """Predict rows: JSON with one of dataframe_split, dataframe_records, instances and inputs, or CSV, or Parquet."""
    kind, raw = media_type(request), await request.body()
    if kind != "application/json" and kind not in _FILE_SUFFIXES:
        raise Problem(415, "wrong-type", "send rows as application/json, text/csv or application/vnd.apache.parquet")
    return await _answer(request, PredictionCall(kind), raw)


@dataclass(frozen=True)
class PredictionCall:
    """A request for predictions, without its body."""

    kind: str  # the media type of the body
    model: str | None = None  # the model's name in the Open Inference Protocol; None: MLflow's protocol


async def _answer(request: Request, call: PredictionCall, raw: bytes) -> Response:
    """Answer in a thread, or in the process for large bodies; never on the event loop, where all requests would wait.

    The number of rows outside the bounds is stored in the request, for a header and a counter.
    """
    service = get_service(request)
    if len(raw) <= _MAX_THREAD_BYTES:
        answer = await run_in_threadpool(answer_call, service.vault, service.options.max_rows, call, raw)
    else:
        answer = await request.app.state.bulk.answer(call, raw)
    response, request.state.outside_rows = answer
    if len(response.body) <= _PIECE_BYTES:
        return response

    async def cut() -> AsyncIterator[bytes]:  # a connection that gets everything at once copies it more than once
        for start in range(0, len(response.body), _PIECE_BYTES):
            yield bytes(response.body[start : start + _PIECE_BYTES])

    return StreamingResponse(cut(), response.status_code, response.headers)


def answer_call(vault: Vault, max_rows: int, call: PredictionCall, raw: bytes) -> tuple[Response, int]:
    """Parse, predict and format; return the response and the number of rows outside the bounds."""
    try:
        body: Any = parse_json(raw, max_rows=max_rows) if call.kind == "application/json" else None
        if call.model is not None:
            rows = _read_tensors(body, vault, max_rows)
        elif call.kind == "application/json":
            rows = _read_rows(body, vault, max_rows)
        else:
            rows = Upload(raw, max_rows, _FILE_SUFFIXES[call.kind])
        values, outside = _predict_rows(vault, max_rows, rows)
        if call.model is None:
            content = b'{"predictions":' + format_numbers(values) + b"}"
        else:
            content = _format_tensor(call.model, vault.newest, body.get("id"), values)
        return Response(content, media_type="application/json"), outside
    except (ExpungeError, Problem) as error:
        if call.model is None:
            raise
        return refuse_inference(to_problem(error)), 0


def _predict_rows(vault: Vault, max_rows: int, data: Any) -> tuple[Floats, int]:
    """Predict rows; return the values and the number of rows outside the bounds."""
    if isinstance(data, np.ndarray) and len(data) > max_rows:
        raise InvalidInput(f"a body has at most {max_rows:,} rows, got {len(data):,}")
    if data.data in ([], {}) if isinstance(data, Upload) else not len(data):
        return np.empty(0), 0
    predictions = vault.predictions(data, ids=False)
    return predictions.values, int(predictions.outside.sum())


def _read_rows(body: Any, vault: Vault, max_rows: int) -> Any:
    """Return the rows of one of MLflow's four JSON forms: an upload if columns are named, else an array."""
    forms = [form for form in _JSON_FORMS if isinstance(body, dict) and form in body]
    if len(forms) != 1:
        raise InvalidInput(f"the body must be an object with exactly one of {', '.join(_JSON_FORMS)}")
    (form,), value = forms, body[forms[0]]
    if form == "dataframe_split":
        columns, data = (value.get("columns"), value.get("data")) if isinstance(value, dict) else (None, None)
        if not (
            isinstance(columns, list)
            and isinstance(data, list)
            and all(isinstance(row, list) and len(row) == len(columns) for row in data)
        ):
            raise InvalidInput("dataframe_split must have columns, and data with as many cells in each row")
        if repeated := len(columns) - len(set(map(str, columns))):
            raise InvalidInput(f"dataframe_split names columns more than once: {repeated:,} of {len(columns):,}")
        return Upload({str(name): [row[k] for row in data] for k, name in enumerate(columns)}, max_rows)
    if isinstance(value, dict):  # columns by name
        by_name = {name: column if isinstance(column, list) else [column] for name, column in value.items()}
        return Upload(by_name, max_rows)
    if not isinstance(value, list):
        raise InvalidInput(f"{form} must be a list of rows")
    if form == "dataframe_records" or (value and all(isinstance(row, dict) for row in value)):
        return Upload(value, max_rows)
    return _build_array(value, len(vault.inputs))


def _build_array(rows: list[Any], width: int) -> Floats:
    try:
        array = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("rows must be lists of numbers, all of one length") from None
    if array.ndim == 1 and array.size in (0, width):
        array = array.reshape(-1, width)
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidInput(f"each row must have {width} numbers: the inputs, in the order of the vault's status")
    return array


v2_router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])


@v2_router.get("")
def describe_server() -> dict[str, Any]:
    """Return name and version of this server."""
    return {"name": "expunge", "version": __version__, "extensions": []}


@v2_router.get("/health/live")
async def check_live() -> dict[str, bool]:
    """Answer that the process is alive."""
    return {"live": True}


@v2_router.get("/health/ready")
def check_ready(request: Request) -> dict[str, bool]:
    """Answer whether the service predicts; refuse while it shuts down."""
    _refuse_while_draining(get_service(request))
    return {"ready": True}


@v2_router.get("/models/{name}", response_model=None)
@v2_router.get("/models/{name}/versions/{number}", response_model=None)
def describe_model(
    request: Request, name: str, who: Annotated[Principal, Predict], number: str | None = None
) -> Response:
    """Describe the tensors that the model takes and returns: one input per column."""
    service = get_service(request)
    if (refusal := _refuse_other_model(service, name, number)) is not None:
        return refusal
    status = service.vault.status()
    inputs = [{"name": column, "datatype": "FP64", "shape": [-1]} for column in status.columns]
    outputs = [{"name": "predict", "datatype": "FP64", "shape": _tensor_shape(-1, len(status.targets))}]
    about = {"name": name, "versions": [str(service.vault.newest)], "platform": "expunge"}
    return JSONResponse({**about, "inputs": inputs, "outputs": outputs})


@v2_router.get("/models/{name}/ready", response_model=None)
def check_model_ready(request: Request, name: str) -> Response:
    """Answer whether this model predicts."""
    return _answer_ready(request, name, None)


@v2_router.get("/models/{name}/versions/{number}/ready", response_model=None)
def check_version_ready(request: Request, name: str, number: str, who: Annotated[Principal, Predict]) -> Response:
    """Answer whether this version predicts. It needs a token: versions reveal the number of requests to the vault."""
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
    """Predict rows, given as one tensor per column, or as one tensor of shape (n, d) with all inputs."""
    service = get_service(request)
    if (refusal := _refuse_other_model(service, name, number)) is not None:
        return refusal
    if "inference-header-content-length" in request.headers:
        return _error_response(400, "binary tensors are not supported: send JSON")
    return await _answer(request, PredictionCall("application/json", name), await request.body())


def refuse_inference(problem: Problem) -> Response:
    """Return a problem as the Open Inference Protocol has it."""
    return _error_response(400 if problem.status == 422 else problem.status, problem.detail, problem.headers)


def _format_tensor(model: str, version: int, id_: Any, values: Floats) -> bytes:
    answer = {"model_name": model, "model_version": str(version)}
    if isinstance(id_, str):
        answer["id"] = id_.encode(errors="replace").decode()  # half of a surrogate pair cannot be sent
    output = {"name": "predict", "shape": list(values.shape), "datatype": "FP64"}
    head, about = json.dumps(answer)[:-1], json.dumps(output)[:-1]
    data = format_numbers(values.ravel())
    return b"".join((head.encode(), b',"outputs":[', about.encode(), b',"data":', data, b"}]}"))


def _read_tensors(body: Any, vault: Vault, max_rows: int) -> Any:
    inputs = body.get("inputs") if isinstance(body, dict) else None
    if not isinstance(inputs, list) or not inputs or not all(isinstance(tensor, dict) for tensor in inputs):
        raise InvalidInput("inputs must be a list of tensors")
    columns = dict[str, list[Any]]()
    for tensor in inputs:
        name, data, shape = tensor.get("name"), tensor.get("data"), tensor.get("shape")
        if not isinstance(name, str) or not isinstance(data, list) or not isinstance(shape, list):
            raise InvalidInput("a tensor must have name, shape, datatype and data")
        if name in columns:
            raise InvalidInput("two tensors have the same name")
        columns[name] = data
    d = len(vault.inputs)
    if len(inputs) == 1 and len(inputs[0]["shape"]) == 2 and inputs[0]["shape"][1] == d:
        return _reshape_tensor(inputs[0]["data"], d)
    return Upload({name: _flatten_column(data) for name, data in columns.items()}, max_rows)


def _flatten_column(data: list[Any]) -> list[Any]:
    """Return the cells of a column of shape (n,) or (n, 1), flat or nested."""
    return [cell[0] if isinstance(cell, list) and len(cell) == 1 else cell for cell in data]


def _reshape_tensor(data: list[Any], width: int) -> Floats:
    if data and isinstance(data[0], list):
        return _build_array(data, width)
    if len(data) % width:
        raise InvalidInput("the tensor has more or fewer numbers than its shape requires")
    return _build_array([data[start : start + width] for start in range(0, len(data), width)], width)


def _tensor_shape(rows: int, targets: int) -> list[int]:
    return [rows] if targets == 1 else [rows, targets]


def _refuse_other_model(service: Service, name: str, number: str | None) -> Response | None:
    """Return a refusal if this is not our model. Its version is the newest request: the model changes with each."""
    known = service.vault.places.vault.stem
    if name != known:
        return _error_response(404, f"no such model; this server has {known}")
    if number is not None and number != str(service.vault.newest):
        return _error_response(404, "no such version: only the newest model is available")
    return None


def _error_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": detail}, status, headers)


def _refuse_while_draining(service: Service) -> None:
    if service.draining:
        raise Problem(503, "draining", "the service is shutting down")
