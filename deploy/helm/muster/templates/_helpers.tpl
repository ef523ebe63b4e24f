{{- define "muster.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "muster.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "muster.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "muster.name" .) -}}
{{- else -}}
{{- required "serviceAccount.name: name the ServiceAccount that is there, or set serviceAccount.create to true" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "muster.image" -}}
{{- $from := required "image.repository: say where your image of Muster is (deploy/Containerfile builds it); there is no default" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $from .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $from (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "muster.shadow" -}}
{{- if eq .Values.mode "shadow" }}yes{{ end -}}
{{- end -}}

{{- /* The file that `muster scheduler --config` reads. */ -}}
{{- define "muster.config" -}}
{{- $shadow := eq .Values.mode "shadow" -}}
{{- $lease := dict "enabled" (not $shadow) "namespace" .Release.Namespace "name" (include "muster.name" .) -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "apiVersion" "config.muster.dev/v1alpha1" -}}
{{- $_ := set $config "kind" "SchedulerConfiguration" -}}
{{- $_ := set $config "shadow" $shadow -}}
{{- $_ := set $config "leaderElection" (mustMerge $lease (.Values.config.leaderElection | default dict)) -}}
{{- toYaml $config -}}
{{- end -}}
