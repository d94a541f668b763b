"""HTTP requests to a Kubernetes API server, as the user that a kubeconfig or a pod's service account says."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from yaml import YAMLError

from dlrmx.errors import ClusterError, Unanswered
from dlrmx.launch.kube_errors import Refused, refusal

Object = dict[str, Any]

IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
CONNECT_S, READ_S = 5.0, 30.0
# Of a followed log: whoever follows asks again, as what is between here and the server may have dropped the connection.
QUIET_S = 60.0
MERGE_PATCH = "application/merge-patch+json"


class KubeApi:
    """One API server. All methods raise ClusterError, and `Refused`, which is one, where the server says no."""

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    def get(self, path: str, **query: str) -> Object:
        return self._json("GET", path, None, query)

    def find(self, path: str, **query: str) -> Object | None:
        """As `get`; None where there is no such object."""
        try:
            return self.get(path, **query)
        except Refused as error:
            if error.status == 404 and error.names_object:
                return None
            raise

    def create(self, path: str, body: Object) -> Object:
        """Create an object. A field that the server does not know is an error, not dropped in silence."""
        return self._json("POST", path, body, {"fieldValidation": "Strict"})

    def merge(self, path: str, body: Object) -> Object:
        return self._json("PATCH", path, body, {}, MERGE_PATCH)

    def delete(self, path: str) -> None:
        """Delete an object and, in the background, what it owns; one that is gone is fine."""
        try:
            self._json("DELETE", path, {"propagationPolicy": "Background"}, {})
        except Refused as error:
            if error.status != 404:
                raise

    def lines(self, path: str, *, follow: bool, **query: str) -> Iterator[str]:
        """The lines of a pod's log, line ends included; with `follow`, as they come, until the pod has ended.

        ClusterError where it breaks off, also where nothing came for QUIET_S.
        """
        read_s = QUIET_S if follow else READ_S
        response = self._send("GET", path, None, {**query, "follow": str(follow).lower()}, read_s=read_s)
        import urllib3

        rest = b""
        try:
            for chunk in response.stream(65_536):
                *complete, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace") + "\n" for line in complete)
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"the pod's log broke off: {error}") from error
        finally:
            response.close()
        if rest:
            yield rest.decode(errors="replace")

    def _json(self, method: str, path: str, body: Object | None, query: dict[str, str], kind: str = "") -> Object:
        import urllib3

        response = self._send(method, path, body, query, kind)
        try:
            found = json.loads(response.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise self._unreadable(method, f"is cut off or no JSON: {error}") from error
        if not isinstance(found, dict) or "kind" not in found and "metadata" not in found:
            raise self._unreadable(method, "is no object of Kubernetes")
        return found

    def _unreadable(self, method: str, why: str) -> ClusterError:
        what = f"the answer of the Kubernetes API server at {self._client.configuration.host} {why}"
        return _left_open(method)(what, hint="does a proxy or a login page answer? Try: kubectl cluster-info")

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: dict[str, str],
        kind: str = "",
        read_s: float | None = READ_S,
    ) -> Any:
        import urllib3

        configuration = self._client.configuration
        headers = {"Accept": "application/json, */*", "Content-Type": kind or "application/json"}
        for auth in configuration.auth_settings().values():
            headers[auth["key"]] = auth["value"]
        try:
            response = self._client.rest_client.pool_manager.request(
                method,
                f"{configuration.host}{path}?{urlencode(query)}",
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=read_s),
                preload_content=False,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            never = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
            error_type = ClusterError if isinstance(error, never) else _left_open(method)
            raise error_type(
                f"the Kubernetes API server at {configuration.host} cannot be reached: {error}",
                hint="is the VPN up, and is it the right kubeconfig context? Try: kubectl cluster-info",
            ) from error
        if response.status >= 300:
            raise refusal(response.status, _text(response), method, path)
        return response


def _left_open(method: str) -> type[ClusterError]:
    """The error of a request without an answer: only what was to change something may have done so."""
    return ClusterError if method == "GET" else Unanswered


def _text(response: Any) -> str:
    import urllib3

    try:
        data: bytes = response.data
    except urllib3.exceptions.HTTPError:
        return ""  # the status says enough
    return data.decode(errors="replace")


def connect(context: str | None, namespace: str | None) -> KubeApi:
    """The API server of a kubeconfig's context; without a kubeconfig, that of the cluster that this process runs in.

    Raises ClusterError where there is neither, or the client library is missing.
    """
    try:
        from kubernetes.client import ApiClient, Configuration
        from kubernetes.config import ConfigException
    except ImportError as error:
        raise ClusterError("the kubernetes package is not installed", hint="pip install 'dlrmx[kubernetes]'") from error
    configuration = Configuration()
    hint = "KUBECONFIG names the file; `kubectl config get-contexts` lists contexts, cluster.context names one"
    where = os.environ.get("KUBECONFIG") or "~/.kube/config"
    try:
        with _overheard() as complaints:
            found = _load(configuration, context)
    except (ConfigException, OSError, YAMLError, *_NO_KUBECONFIG) as error:
        raise ClusterError(f"no Kubernetes cluster can be told from {where}: {error}", hint=hint) from error
    if complaints and not configuration.api_key:  # it goes on without a login, and would be nobody
        hint = "log in again, or run the program that users[].user.exec of the kubeconfig names by hand"
        raise ClusterError(f"the login that {where} asks for failed: {'; '.join(complaints)}", hint=hint)
    return KubeApi(ApiClient(configuration), namespace or found or "default")


# What the client library raises where a file is YAML, but no kubeconfig, or asks for what it cannot do.
_NO_KUBECONFIG = (ValueError, TypeError, KeyError, AttributeError)


@contextmanager
def _overheard() -> Iterator[list[str]]:
    """The errors that the client library only logs meanwhile, as of a login program that fails."""
    said: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger().removeHandler(handler)


def _load(configuration: Any, context: str | None) -> str | None:
    """Fill in a client configuration; returns the namespace that goes with it."""
    from kubernetes.config import list_kube_config_contexts, load_incluster_config, load_kube_config

    path = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    in_cluster = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and context is None
    if in_cluster and not any(os.path.exists(part) for part in path.split(os.pathsep)):
        load_incluster_config(client_configuration=configuration)
        return IN_CLUSTER_NAMESPACE.read_text().strip()
    load_kube_config(path, context=context, client_configuration=configuration, persist_config=False)
    contexts, active = list_kube_config_contexts(path)
    wanted = active if context is None else next(entry for entry in contexts if entry["name"] == context)
    namespace: str | None = wanted["context"].get("namespace")
    return namespace
