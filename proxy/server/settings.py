"""All settings: one YAML file, each also a flag and a ``KUBECACHE_*`` variable.

Flags win over variables, variables over the file.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from proxy.forms.objects import ObjectDecoder
from proxy.kube.negotiation import FormName
from proxy.kube.requests import Verb
from proxy.kube.selectable import declared_field
from proxy.reads.freshness import Consistency
from proxy.server import flags
from proxy.server.addresses import Address, parse_address
from proxy.server.complaints import complaints, section_complaint, where, yaml_complaint
from proxy.server.durations import parse_duration
from proxy.server.flags import Kind

_RESOURCE = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9.-]+)?")


def _parse_address(value: object) -> object:
    return parse_address(value) if isinstance(value, str) else value


def _parse_resource(value: object) -> object:
    if isinstance(value, str) and not _RESOURCE.fullmatch(value):
        raise ValueError(f"{value!r} is not a resource like pods or deployments.apps")
    return value


def _parse_resources(value: object) -> object:
    """Read entries that are JSON, as flags and variables give them: one, or a list of them."""
    if not isinstance(value, str | list | tuple):
        return value
    entries: list[object] = []
    for each in [value] if isinstance(value, str) else value:
        found = _parse_json(each) if isinstance(each, str) else each
        entries.extend(found if isinstance(found, list) else [found])
    return entries


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        example = text if _RESOURCE.fullmatch(text) else "pods"
        raise ValueError(f'found {text!r}, expected {{"resource": "{example}"}}') from error


def _check_index(value: str) -> str:
    return declared_field(value).label


_ADDRESS = Kind("ADDRESS", "host:port or unix:/path")
_COUNT = Kind("COUNT", "a whole number of 0 or more")
_DURATIONS = Kind("DURATION", "a duration of 0 or more, such as 30s or 5m")
_FILE = Kind("FILE", "the name of a file")
_FORMS = Kind("FORMS", "a list such as [json, table]")
_NAMES = Kind("NAMES", "a list such as [default]")
_PATHS = Kind("PATHS", "a list such as ['spec.containers[*].image']")

Count = Annotated[int, _COUNT, Field(ge=0)]
Duration = Annotated[float, _DURATIONS, BeforeValidator(parse_duration), Field(ge=0)]
ListenAddress = Annotated[Address, _ADDRESS, NoDecode, BeforeValidator(_parse_address)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourceSettings(_Section):
    """A resource whose informers start at once."""

    resource: Annotated[
        str, Kind("RESOURCE", "a resource such as pods"), BeforeValidator(_parse_resource)
    ] = Field(description="Its plural name: pods, deployments.apps, foos.v1.example.com.")
    namespaces: Annotated[tuple[str, ...], _NAMES] = Field(
        default=(), description="Only these namespaces; empty for the whole resource."
    )
    forms: Annotated[tuple[FormName, ...], _FORMS] = Field(
        default=(FormName.JSON,),
        min_length=1,
        description="Representations that are cached from the start; others are earned.",
    )
    indexes: Annotated[tuple[Annotated[str, AfterValidator(_check_index)], ...], _PATHS] = Field(
        default=(),
        description="Paths to select by with fieldSelector=path=value: spec.containers[*].image.",
    )

    @model_validator(mode="after")
    def _check_overlaps(self) -> Self:
        """Refuse indexes of which one lies within another."""
        ObjectDecoder([declared_field(text) for text in self.indexes])
        return self


class OnDemandSettings(_Section):
    """How many reads of a resource within a minute earn an informer; 1: at once, 0: never."""

    watch: Count = Field(default=1, description="So many watches earn one; 0: none does.")
    list: Count = Field(default=2, description="So many lists do.")
    get: Count = Field(default=10, description="So many gets do.")

    @property
    def thresholds(self) -> dict[Verb, int]:
        """The same, as the registry takes it."""
        return {Verb.WATCH: self.watch, Verb.LIST: self.list, Verb.GET: self.get}


Resources = Annotated[
    tuple[ResourceSettings, ...],
    Kind("RESOURCE", 'a list such as [{"resource": "pods"}]'),
    NoDecode,
    BeforeValidator(_parse_resources),
]


class CacheSettings(_Section):
    """Which informers there are."""

    resources: Resources = Field(
        default=(),
        description="A resource cached from the start; /readyz waits for it. JSON, and may be "
        'given again: {"resource": "pods", "namespaces": ["team-a"]}.',
    )
    on_demand: OnDemandSettings = OnDemandSettings()
    on_miss: Literal["serve", "confirm"] = Field(
        default="serve",
        description="confirm: let the API server say it too before an object isn't found.",
    )
    idle_ttl: Duration = Field(
        default=1800.0, description="An earned informer that nobody used for so long is stopped."
    )


class Settings(BaseSettings):
    """A near cache for kube-apiserver: reads from informers, all else passed through."""

    model_config = SettingsConfigDict(
        env_prefix="KUBECACHE_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    config: Annotated[Path | None, _FILE] = Field(
        default=None, description="A YAML file with these settings."
    )
    kubeconfig: Annotated[Path | None, _FILE] = Field(
        default=None,
        description="The API server and who the proxy is there; default: $KUBECONFIG, in "
        "a pod its service account, elsewhere ~/.kube/config.",
    )
    context: Annotated[str | None, Kind("NAME", "a name")] = Field(
        default=None, description="A context of the kubeconfig; default: the current one."
    )
    listen: ListenAddress = Field(
        default=Address("127.0.0.1", 8001),
        description="The Kubernetes API: host:port or unix:/path.",
    )
    admin: ListenAddress = Field(
        default=Address("127.0.0.1", 8002), description="Metrics, health and status."
    )
    consistency: Consistency = Field(
        default=Consistency.SESSION,
        description="session: reads see what was written through this proxy. eventual: whatever "
        "is cached. strict: reads without resourceVersion are as fresh as kube-apiserver's own.",
    )
    max_staleness: Duration = Field(
        default=0.0,
        description="No cached answer is older; what can't be proven goes live. 0 sets no bound.",
    )
    probe_interval: Duration = Field(
        default=0.0,
        description="How often informers are proven current without being asked to; 0 for never.",
    )
    conflict_check: Literal["local", "forward"] = Field(
        default="local",
        description="local: refuse an update of an old version without asking the API server.",
    )
    live_rate: Annotated[float, Kind("NUMBER", "a number of 0 or more")] = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Live reads a second that each kind of client may make; 0 sets no limit.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What is logged: all of this level and above."
    )
    cache: CacheSettings = CacheSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the file, whose name is a setting itself, behind flags and variables."""
        file = init_settings().get("config") or env_settings().get("config")
        sources = (init_settings, env_settings)
        return (
            (*sources, YamlConfigSettingsSource(settings_cls, yaml_file=file)) if file else sources
        )


def load_settings(arguments: Sequence[str], program: str) -> Settings:
    """Read the settings of a command line.

    Raises ValueError with all that is wrong in one line, SystemExit for --help.
    """
    given = flags.parse(arguments, program, Settings)
    file = _file(given)
    if file:
        _check_file(file, where(("config",), given, None))
    try:
        return Settings(**flags.nested(given))
    except ValidationError as error:
        raise ValueError(complaints(error, Settings, given, file)) from error
    except SettingsError as error:
        raise ValueError(section_complaint(Settings) or str(error)) from error


def given_at(key: str, arguments: Sequence[str], program: str) -> str:
    """Name the flag, the variable or the place in the file that a setting is from."""
    given = flags.parse(arguments, program, Settings)
    return where(tuple(key.split(".")), given, _file(given))


def _file(given: Mapping[str, Any]) -> Path | None:
    name = given.get("config") or os.environ.get("KUBECACHE_CONFIG")
    return Path(name) if name else None


def _check_file(path: Path, given: str) -> None:
    """Refuse a file that isn't there, or isn't a mapping: the library would go on without it."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        found = f"found {str(path)!r}, expected a file that can be read"
        raise ValueError(f"{given}: {found}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {yaml_complaint(error)}") from error
    if not isinstance(content, dict | None):
        raise ValueError(f"{path}: not a mapping of settings")


def default_kubeconfig() -> Path | None:
    """What kubectl would use; None for the service account of a pod."""
    if "KUBECONFIG" in os.environ:
        return Path(os.environ["KUBECONFIG"])
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    return Path.home() / ".kube" / "config"
