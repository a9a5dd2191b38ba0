{{/* The keys that the operator sets, as JSON. */}}
{{- define "peercached.config" -}}
{{- mergeOverwrite (deepCopy .root.Values.config) .nodes.config | toJson -}}
{{- end -}}

{{/* The file of the daemon. A JSON text, number, bool or list of texts is also one in TOML. */}}
{{- define "peercached.toml" -}}
{{- $values := .root.Values -}}
{{- $config := include "peercached.config" . | fromJson -}}
{{- if $values.etcdEndpoints -}}
{{- $_ := set $config "membership" "etcd" -}}
{{- $_ := set $config "etcd_endpoints" $values.etcdEndpoints -}}
{{- else if $values.headlessService -}}
{{- $name := printf "%s-heads.%s.svc" (include "peercached.fullname" .root) .root.Release.Namespace -}}
{{- $_ := set $config "discovery_addr" (list (printf "%s:%v" $name (get $config "meta_port" | default 31998))) -}}
{{- else -}}
{{- $_ := set $config "discovery_addr" $values.heads -}}
{{- end -}}
{{- if ne .role "full" -}}
{{- $_ := set $config "role" .role -}}
{{- end -}}
{{- $_ := set $config "pool_size" .nodes.pool.size -}}
{{- if eq .nodes.pool.backing "hugepages" -}}
{{- $_ := set $config "huge_pages" true -}}
{{- else if eq .nodes.pool.backing "file" -}}
{{- $_ := set $config "pool_file" "/pool/pages" -}}
{{- end -}}
{{- $_ := set $config "cluster_secret_file" "/etc/peercached-secret/cluster.secret" -}}
{{- $_ := set $config "socket_path" "/run/peercached/peercached.sock" -}}
{{- $_ := set $config "socket_group" "64201" -}}
{{- $_ := set $config "state_dir" "/var/lib/peercached" -}}
{{- range $key, $value := $config }}
{{ $key }} = {{ toRawJson $value }}
{{- end }}
{{- end -}}
