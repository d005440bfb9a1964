"""Accept headers: which ask for plain JSON first, and who gets it indented."""

from __future__ import annotations

import pytest

from proxy.kube.negotiation import (
    LONGEST,
    MOST,
    PLAIN,
    FormName,
    Representation,
    negotiate,
    prefers_json,
    wants_indent,
)

TABLE = "as=Table;v=v1;g=meta.k8s.io"
KUBECTL = (
    f"application/json;{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        # No wish is JSON.
        ("", True),
        ("  ", True),
        ("*/*", True),
        ("application/*", False),
        ("application/json", True),
        (" application/json ", True),
        # Nobody writes so much; a head may have a megabyte of it.
        ("application/json".ljust(LONGEST), True),
        ("application/json".ljust(LONGEST + 1), False),
        ("application/json" + "," * 900_000, False),
        # Clients as they are.
        ("application/json, */*", True),
        (KUBECTL, False),
        (f"{METADATA},application/json", False),
        (f"{PROTOBUF},application/json", False),
        (f"{PROTOBUF}, */*", False),
        (BROWSER, True),
        ("application/json;stream=watch", True),
        ("application/json;charset=utf-8", True),
        # Quality first, then order.
        ("application/yaml;q=0.5, application/json", True),
        ("application/json;q=0.5, application/yaml", False),
        ("application/yaml, application/json", False),
        ("application/json, application/yaml", True),
        ("application/json;q=0.9, application/yaml;q=0.8, */*;q=0.7", True),
        ("application/yaml;q=0.9, */*;q=0.95", True),
        ("application/json ; q=0.5 , application/yaml ; q=0.4", True),
        ("application/yaml;q=oops, application/json;q=0.1", False),
        # Wildcards come last, but for the better one that stands behind what is named.
        ("*/*, application/yaml", False),
        ("*/*, application/yaml;q=0.1", False),
        ("application/*, application/json", True),
        ("text/*, application/json", True),
        (f"*/*, {PROTOBUF}", False),
        ("application/yaml;q=0.1, */*;q=0.2", True),
        ("application/json;q=0.1, application/yaml;q=0.2, */*;q=0.3", True),
        ("application/json;q=0.1, */*;q=0.3, application/yaml;q=0.2", False),
        (",".join(["application/json"] * MOST), True),
        (",".join(["application/json"] * (MOST + 1)), False),
        # What can't be met for certain.
        ("application/yaml;q=0.5, application/json;q= 0.9", False),
        ("application/json\t", False),
        ("application/json;q=0", False),
        ("application/json;q=oops", False),
        ("application/yaml", False),
        ("application/cbor", False),
        ("text/*", False),
        ("text/plain", False),
        ("application/json;pretty=1", False),
        ("application/json;as=", False),
        ("APPLICATION/JSON", False),
        ("application", False),
        ("json", False),
        (",", False),
        (", application/json", False),
        (";q=1", False),
    ],
)
def test_accept_headers(accept: str, *, json: bool) -> None:
    assert prefers_json(accept) is json


METADATA_V1 = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LIST_V1 = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_TABLE = Representation(FormName.TABLE, "v1")


@pytest.mark.parametrize(
    ("accept", "representations"),
    [
        (KUBECTL, [JSON_TABLE, Representation(FormName.TABLE, "v1beta1"), PLAIN]),
        (f"{PROTOBUF},application/json", [Representation(FormName.PROTOBUF), PLAIN]),
        (f"{PROTOBUF}, */*", [Representation(FormName.PROTOBUF), PLAIN]),
        (f"application/foo,{PROTOBUF}", [Representation(FormName.PROTOBUF)]),
        (f"{PROTOBUF};stream=watch", [Representation(FormName.PROTOBUF)]),
        (f"{PROTOBUF};q=0.5,application/json", [PLAIN, Representation(FormName.PROTOBUF)]),
        (f"*/*,{PROTOBUF};q=0.5", [Representation(FormName.PROTOBUF), PLAIN]),
        (f"*/*, application/json;{TABLE}", [JSON_TABLE, PLAIN]),
        (
            f"{PROTOBUF};{METADATA_V1},application/json;{METADATA_V1},application/json",
            [
                Representation(FormName.METADATA_PROTOBUF, "v1"),
                Representation(FormName.METADATA, "v1"),
                PLAIN,
            ],
        ),
        (
            f"{PROTOBUF};{LIST_V1},application/json;{LIST_V1}",
            [
                Representation(FormName.METADATA_PROTOBUF, "v1", is_list=True),
                Representation(FormName.METADATA, "v1", is_list=True),
            ],
        ),
        # What the API server may refuse for its parameters isn't answered here.
        ("application/json;g=meta.k8s.io", []),
        (f"{PROTOBUF};v=v1", []),
        ("application/json;sv=v2", []),
        ("application/json;stream=other", []),
        (f"application/json;stream=watch;{METADATA_V1}", [Representation(FormName.METADATA, "v1")]),
        # There are no Tables in protobuf.
        (f"{PROTOBUF};{TABLE}", []),
        (f"{PROTOBUF};{TABLE},application/json;{TABLE}", [JSON_TABLE]),
        ("application/json; as=Table ; g=meta.k8s.io; v=v1", [JSON_TABLE]),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;as=Table", [JSON_TABLE]),
        # What is refused, or answered in what isn't kept, ends it.
        ("application/json;as=Table,application/json", []),
        ("application/json;as=Table;g=meta.k8s.io;v=v2,application/json", []),
        ("application/json;as=Foo;g=meta.k8s.io;v=v1", []),
        (f"*/*;{TABLE}", []),
        (f"application/yaml;{TABLE},application/json", []),
        ("application/yaml,application/json", []),
    ],
)
def test_representations(accept: str, representations: list[Representation]) -> None:
    assert list(negotiate(accept)) == representations


@pytest.mark.parametrize(
    ("pretty", "agent", "indent"),
    [
        (None, "", False),
        (None, "kubectl/v1.37.2", False),
        (None, "curl/8.5.0", True),
        (None, "Wget/1.21", True),
        (None, "Mozilla/5.0 (X11; Linux x86_64)", True),
        (None, "Mozilla/4.0", False),
        (None, "libcurl/8", False),
        (None, "CURL/8", False),
        (True, "", True),
        (True, "kubectl", True),
        (False, "curl/8.5.0", False),
    ],
)
def test_who_gets_it_indented(pretty: bool | None, agent: str, *, indent: bool) -> None:
    assert wants_indent(pretty, agent) is indent
