"""The stand-in's discovery, version and health documents, in their plain forms."""

from proxy.demo.storage import KINDS, Json
from proxy.kube.errors import NotFound

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def document(path: str) -> Json:
    """Find the document of a path. Raises NotFound."""
    for root in {each.resource.root for each in KINDS}:
        if path.rstrip("/") == root:
            return _resource_list(root)
    match path.rstrip("/"):
        case "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0+stand-in"}
        case "/healthz" | "/livez" | "/readyz":
            return {"status": "ok"}
        case "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        case "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_APPS]}
        case "/apis/apps":
            return {"kind": "APIGroup", "apiVersion": "v1", **_APPS}
    raise NotFound("the server could not find the requested resource")


_APPS: Json = {
    "name": "apps",
    "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
    "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
}


def _resource_list(root: str) -> Json:
    chosen = [each for each in KINDS if each.resource.root == root]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": chosen[0].resource.group_version,
        "resources": [
            {
                "name": each.resource.plural,
                "singularName": each.kind.lower(),
                "namespaced": each.namespaced,
                "kind": each.kind,
                "verbs": _VERBS,
            }
            for each in chosen
        ],
    }
