{{/* The list of the two DaemonSets: their names, roles and values. */}}
{{- define "peercached.pools" -}}
{{- $name := include "peercached.fullname" . -}}
{{- $pools := list -}}
{{- if .Values.gpuNodes.enabled -}}
{{- $pools = append $pools (dict "name" $name "role" "full" "values" "gpuNodes" "nodes" .Values.gpuNodes) -}}
{{- end -}}
{{- if .Values.memoryNodes.enabled -}}
{{- $pools = append $pools (dict "name" (printf "%s-memory" $name) "role" "memory" "values" "memoryNodes" "nodes" .Values.memoryNodes) -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}

{{/* A size such as 64GiB or 64Gi in MiB. peercached.checks allows these units only. */}}
{{- define "peercached.mib" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if contains "Ti" . -}}{{ mul $number 1024 1024 }}
{{- else if contains "Gi" . -}}{{ mul $number 1024 }}
{{- else -}}{{ $number }}
{{- end -}}
{{- end -}}

{{/* MiB as a quantity of Kubernetes: 66Gi. */}}
{{- define "peercached.quantity" -}}
{{- $mib := int64 . -}}
{{- if mod $mib 1024 -}}{{ $mib }}Mi{{- else -}}{{ div $mib 1024 }}Gi{{- end -}}
{{- end -}}

{{/*
The memory limit in MiB, rounded up to a GiB (docs/sizing.md, "The rest"): the pool unless huge pages
hold it, 1 GiB for the daemon, 128 MiB for the estimate of larger pools, 48 bytes for each record, and
with `gpu: cuda` 2 GiB for slots of 8 GPUs and the driver.
*/}}
{{- define "peercached.memoryMib" -}}
{{- $pool := .nodes.pool -}}
{{- $config := include "peercached.config" . | fromJson -}}
{{- $records := add (dig "directory_capacity" 32000000 $config | int64) (dig "directory_copies" 4000000 $config | int64) -}}
{{- $mib := add 1024 128 (div (add (mul $records 48) 1048575) 1048576) (include "peercached.mib" $pool.extraMemory | int64) -}}
{{- if eq (dig "gpu" "off" $config) "cuda" -}}
{{- $mib = add $mib 2048 -}}
{{- end -}}
{{- if ne $pool.backing "hugepages" -}}
{{- $mib = add $mib (include "peercached.mib" $pool.size | int64) -}}
{{- end -}}
{{- mul (div (add $mib 1023) 1024) 1024 -}}
{{- end -}}
