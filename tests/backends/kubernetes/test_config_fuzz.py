"""Kubeconfigs with anything anywhere: an access, or an error that says what is wrong; never a crash nor a secret."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.backends.kubernetes.config import contexts, read_access
from muster.backends.kubernetes.tls import tls_for
from muster.errors import MusterError

SECRET = "s3cret-token-of-me"
PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n").decode()
WHOLE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "prod",
    "preferences": {},
    "clusters": [
        {
            "name": "big",
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "certificate-authority": "/nowhere/ca.pem",
                "certificate-authority-data": PEM,
                "insecure-skip-tls-verify": False,
                "tls-server-name": "kubernetes",
                "proxy-url": "http://proxy:3128",
                "disable-compression": False,
                "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}],
            },
        }
    ],
    "users": [
        {
            "name": "me",
            "user": {
                "token": SECRET,
                "tokenFile": "/nowhere/token",
                "username": "me",
                "password": SECRET,
                "client-certificate-data": PEM,
                "client-key-data": PEM,
                "as": "you",
                "as-groups": ["a"],
                "as-user-extra": {"k": ["v"]},
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "/nowhere/plugin",
                    "args": ["a"],
                    "env": [{"name": "A", "value": "b"}],
                    "interactiveMode": "Never",
                    "provideClusterInfo": True,
                },
                "auth-provider": {"name": "gcp", "config": {"a": "b"}},
            },
        }
    ],
    "contexts": [{"name": "prod", "context": {"cluster": "big", "user": "me", "namespace": "research"}}],
}
NO_TEXT = base64.b64encode(b"\xff\xfe\x00").decode()
ODD: list[Any] = [
    None, "", " ", 0, -1, 1.5, True, [], {}, [None], [[]], {"": None}, {"name": None}, "\x00", "\ud7ff", "a\nb", "é",
    "http://", "https://[::1", "https://h:99999", "//", "x" * 10_000, NO_TEXT, "%%%", "2026-11-30",
    "/", "~", ".", "/dev/null", "/proc/self/mem", "(absent)",
]  # fmt: skip


def inner(value: object) -> dict[Any, Any]:
    """What is in a value, by key or by position."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    return dict(enumerate(cast("list[Any]", value))) if isinstance(value, list) else {}


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    return [path, *(place for key, each in inner(value).items() for place in places(each, (*path, key)))]


PLACES = [place for place in places(WHOLE) if place]


def changed(place: tuple[Any, ...], value: object, config: Any = WHOLE) -> dict[str, Any]:
    """The config with something else at a place, where that is still there."""
    config = copy.deepcopy(config)
    at: Any = config
    for key in place[:-1]:
        at = inner(at).get(key)
    if place[-1] in inner(at):
        if value == "(absent)":
            del at[place[-1]]
        else:
            at[place[-1]] = value
    return config


def tried(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config"
        path.write_bytes(text)
        environ = {"KUBECONFIG": str(path), "PATH": os.environ["PATH"]}
        for use in (lambda: contexts(environ=environ), lambda: shown(environ)):
            told = "ok"
            try:
                use()
            except MusterError as error:
                told = str(error)
            assert told
            assert SECRET not in told


def shown(environ: dict[str, str]) -> None:
    access = read_access(environ=environ)
    credential = asyncio.run(access.credentials.current())
    if access.ca_pem:
        tls_for(access, credential)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_each_place_with_each_odd_value(place: tuple[Any, ...]) -> None:
    for value in ODD:
        tried(json.dumps(changed(place, value)).encode())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), min_size=2, max_size=6))
def test_several_places_at_once(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    config = WHOLE
    for place, value in changes:
        config = changed(place, value, config)
    tried(json.dumps(config).encode())


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60), st.integers(0, 2000))
def test_bytes_that_are_cut_or_put_in(junk: bytes, at: int) -> None:
    whole = json.dumps(WHOLE, indent=1).encode()
    tried(whole[:at])
    tried(whole[:at] + junk + whole[at:])
