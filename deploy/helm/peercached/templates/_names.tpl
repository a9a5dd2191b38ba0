{{/* The name of the release, with "peercached" in it. */}}
{{- define "peercached.fullname" -}}
{{- if hasPrefix "peercached" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "peercached-%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* A DaemonSet keeps these for all its life: no version may be among them. */}}
{{- define "peercached.selector" -}}
app.kubernetes.io/name: peercached
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "peercached.labels" -}}
{{ include "peercached.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "peercached.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}
