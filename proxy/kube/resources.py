"""Resources by group, version and plural name, and the keys of their objects."""

from typing import NamedTuple


class Resource(NamedTuple):
    """A group-version-resource: what a URL names, never a kind."""

    group: str
    version: str
    plural: str

    def __str__(self) -> str:
        """Spell it as kubectl does: ``deployments.v1.apps``, core group: ``pods.v1``."""
        return f"{self.plural}.{self.version}" + (f".{self.group}" if self.group else "")

    @property
    def qualified(self) -> str:
        """``deployments.apps``, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_version(self) -> str:
        """``apps/v1``, or ``v1`` for the core group: an object's apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The URL path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "") -> str:
        """The URL path of the collection, cluster-wide or in one namespace."""
        inner = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.root}{inner}/{self.plural}"


class ResourceInfo(NamedTuple):
    """What discovery says of a resource; *has_status*: its status is a subresource."""

    resource: Resource
    kind: str
    namespaced: bool
    has_status: bool = False


def has_no_watch_cache(resource: Resource) -> bool:
    """Tell Events, which kube-apiserver reads from etcd each time (kubernetes PR 96052)."""
    return resource.plural == "events" and resource.group in ("", "events.k8s.io")


def storage_of(resource: Resource) -> tuple[str, str]:
    """Name where the objects are stored: group and plural, whatever version shows them.

    Events of both groups are the same ones.
    """
    return ("" if has_no_watch_cache(resource) else resource.group), resource.plural


def object_key(namespace: str, name: str) -> str:
    """Build the key that lists are sorted by: ``namespace/name``, cluster-scoped ``name``.

    kube-apiserver orders by this one string, bytewise: ``foo-bar/x`` comes before ``foo/x``.
    """
    return f"{namespace}/{name}" if namespace else name


def collection_key(namespace: str) -> str:
    """Build the key of a collection: the keys of all objects in it start so."""
    return f"{namespace}/" if namespace else ""
