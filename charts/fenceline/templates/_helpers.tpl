{{- define "fenceline.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "fenceline.selector" -}}
app.kubernetes.io/name: fenceline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fenceline.labels" -}}
{{ include "fenceline.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fenceline.host" -}}
fenceline.{{ .Release.Namespace }}.svc
{{- end }}
