"""All settings: one YAML file, each also a flag and a ``KUBECACHE_*`` variable.

Flags win over variables, variables over the file.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from proxy.forms.objects import ObjectDecoder
from proxy.kube.requests import Verb
from proxy.kube.selectable import declared_field
from proxy.reads.freshness import Consistency

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_RESOURCE = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9.-]+)?")


def parse_duration(value: object) -> object:
    """Read a Go duration (``30m``, ``1h30m``, ``1.5s``) or a number of seconds."""
    if not isinstance(value, str) or not (pieces := _DURATION.findall(value)):
        return value
    if "".join(number + unit for number, unit in pieces) != value:
        raise ValueError(f"{value!r} is not a duration like 30m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)


class Address(NamedTuple):
    """Where a listener binds: host and port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        """Spell it as the setting does."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix:{self.path}" if self.path else f"{host}:{self.port}"


def parse_address(value: object) -> object:
    """Read ``host:port``, ``[::1]:port``, ``:port`` for all interfaces, or ``unix:/path``."""
    if not isinstance(value, str):
        return value
    if value.startswith("unix:"):
        if not value[5:].startswith("/"):
            raise ValueError("a Unix socket needs an absolute path: unix:/run/kubecache.sock")
        return Address("", 0, value[5:])
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{value!r} is neither host:port nor unix:/path")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - what ":port" means


def _parse_resource(value: object) -> object:
    if isinstance(value, str) and not _RESOURCE.fullmatch(value):
        raise ValueError(f"{value!r} is not a resource like pods or deployments.apps")
    return value


def _check_index(value: str) -> str:
    return declared_field(value).label


Duration = Annotated[float, BeforeValidator(parse_duration), Field(ge=0)]
ListenAddress = Annotated[Address, NoDecode, BeforeValidator(parse_address)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourceSettings(_Section):
    """A resource whose informers start at once."""

    resource: Annotated[str, BeforeValidator(_parse_resource)] = Field(
        description="As kubectl names it: pods, deployments.apps, foos.v1.example.com."
    )
    namespaces: tuple[str, ...] = Field(
        default=(), description="Only these namespaces; empty for the whole resource."
    )
    indexes: tuple[Annotated[str, AfterValidator(_check_index)], ...] = Field(
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

    watch: int = Field(default=1, ge=0)
    list: int = Field(default=2, ge=0)
    get: int = Field(default=10, ge=0)

    @property
    def thresholds(self) -> dict[Verb, int]:
        """The same, as the registry takes it."""
        return {Verb.WATCH: self.watch, Verb.LIST: self.list, Verb.GET: self.get}


class CacheSettings(_Section):
    """Which informers there are."""

    resources: tuple[ResourceSettings, ...] = Field(
        default=(), description="Resources cached from the start; /readyz waits for them."
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
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )

    config: Path | None = Field(default=None, description="A YAML file with these settings.")
    kubeconfig: Path | None = Field(
        default=None,
        description="The API server and who the proxy is there; default: $KUBECONFIG, in "
        "a pod its service account, elsewhere ~/.kube/config.",
    )
    context: str | None = Field(default=None, description="A context of the kubeconfig.")
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
    live_rate: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Live reads a second that each kind of client may make; 0 sets no limit.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
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

    Raises ValueError (pydantic's ValidationError is one), OSError, SystemExit for --help.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", default=os.environ.get("KUBECACHE_CONFIG"))
    file = first.parse_known_args(arguments)[0].config
    if file:
        _check_file(Path(file))
    given = {"config": file} if file else {}
    return Settings(_cli_parse_args=list(arguments), _cli_prog_name=program, **given)  # type: ignore[call-arg]


def _check_file(path: Path) -> None:
    """Refuse a file that isn't there, or isn't a mapping: the library would go on without it."""
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(content, dict | None):
        raise ValueError(f"{path}: not a mapping of settings")


def default_kubeconfig() -> Path | None:
    """What kubectl would use; None for the service account of a pod."""
    if "KUBECONFIG" in os.environ:
        return Path(os.environ["KUBECONFIG"])
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    return Path.home() / ".kube" / "config"
