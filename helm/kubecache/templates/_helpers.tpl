{{- define "kubecache.name" -}}
{{- if contains "kubecache" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-kubecache" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "kubecache.selector" -}}
app.kubernetes.io/name: kubecache
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kubecache.labels" -}}
{{ include "kubecache.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "kubecache.serviceAccount" -}}
{{- $own := ternary (include "kubecache.name" .) "default" .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default $own }}
{{- end }}

{{- /* The proxy's container, which in an initContainer's place needs restartPolicy: Always. */ -}}
{{- define "kubecache.container" -}}
name: kubecache
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - run
  - --config=/etc/kubecache/kubecache.yaml
  - --listen=127.0.0.1:8001
  - --admin=0.0.0.0:8002
ports:
  - name: admin
    containerPort: 8002
startupProbe:
  httpGet:
    path: /readyz
    port: admin
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 300
livenessProbe:
  httpGet:
    path: /livez
    port: admin
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "kubecache.restricted" . | nindent 2 }}
volumeMounts:
  {{- include "kubecache.mounts" . | nindent 2 }}
{{- end }}

{{- define "kubecache.mounts" -}}
- name: kubecache
  mountPath: /etc/kubecache
  readOnly: true
{{- end }}

{{- define "kubecache.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* RBAC rules for the entries of cache.resources that name .namespace, or for those that name
       none when it is empty. Entries are spelt pods, deployments.apps or foos.v1.example.com. */ -}}
{{- define "kubecache.rules" -}}
{{- $namespace := .namespace }}
{{- range .resources }}
{{- if ternary (has $namespace .namespaces) (not .namespaces) (not (empty $namespace)) }}
{{- $resource := first (splitList "." .resource) }}
{{- $group := rest (splitList "." .resource) }}
{{- if and $group (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" (first $group)) }}
{{- $group = rest $group }}
{{- end }}
- apiGroups: [{{ join "." $group | quote }}]
  resources: [{{ $resource }}]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
{{- end }}
