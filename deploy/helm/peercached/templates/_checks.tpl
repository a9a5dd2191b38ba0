{{/* Checks that a schema cannot make, or not with a sentence that names the remedy. */}}
{{- define "peercached.checks" -}}
{{- $values := .Values -}}
{{- if not $values.image.repository -}}
{{- fail "image.repository is empty: name the image that you built with deploy/container/Containerfile and pushed" -}}
{{- end -}}
{{- if and $values.heads $values.etcdEndpoints -}}
{{- fail "heads and etcdEndpoints are both set: remove one of them" -}}
{{- end -}}
{{- if and $values.headlessService (or $values.heads $values.etcdEndpoints) -}}
{{- fail "headlessService is true, and heads or etcdEndpoints are set, too: remove one of them" -}}
{{- end -}}
{{- if not (or $values.heads $values.etcdEndpoints $values.headlessService) -}}
{{- fail "heads is empty: name two or three nodes as host:31998, or set headlessService or etcdEndpoints" -}}
{{- end -}}
{{- range $place, $addresses := dict "heads" $values.heads "etcdEndpoints" $values.etcdEndpoints -}}
{{- range $addresses -}}
{{- if not (regexMatch "^([^:,\\s]+|\\[[0-9a-fA-F:.]+\\]):[0-9]+$" .) -}}
{{- fail (printf "%s: %q is no address with a port: write it as 10.0.0.1:%s" $place . (eq $place "heads" | ternary "31998" "2379")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $place, $nodes := dict "gpuNodes" $values.gpuNodes "memoryNodes" $values.memoryNodes -}}
{{- range $key, $size := dict "size" $nodes.pool.size "extraMemory" $nodes.pool.extraMemory -}}
{{- if not (regexMatch (eq $key "size" | ternary "^[1-9][0-9]*(Mi|Gi|Ti)B?$" "^[0-9]+(Mi|Gi|Ti)B?$") $size) -}}
{{- fail (printf "%s.pool.%s: %q is no size: write a whole number with its unit, such as 512Mi, 64GiB or 2Ti" $place $key $size) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.heads (not $values.hostNetwork) -}}
{{- fail "hostNetwork is false, but heads need fixed addresses: set headlessService or etcdEndpoints instead of heads, or hostNetwork: true" -}}
{{- end -}}
{{- if and $values.networkPolicy.enabled $values.hostNetwork -}}
{{- fail "networkPolicy.enabled is true, but no NetworkPolicy applies to pods on the host's network: use the hosts' firewall, or set hostNetwork: false" -}}
{{- end -}}
{{- if not (or $values.gpuNodes.enabled $values.memoryNodes.enabled) -}}
{{- fail "gpuNodes.enabled and memoryNodes.enabled are both false: enable one of them" -}}
{{- end -}}
{{- if and $values.gpuNodes.enabled $values.memoryNodes.enabled (eq (toJson $values.gpuNodes.nodeSelector) (toJson $values.memoryNodes.nodeSelector)) -}}
{{- fail "gpuNodes.nodeSelector and memoryNodes.nodeSelector are the same: a node can run one daemon only, so give them different labels" -}}
{{- end -}}
{{- if and $values.memoryNodes.enabled (eq (include "peercached.config" (dict "root" . "nodes" $values.memoryNodes) | fromJson | dig "gpu" "off") "cuda") -}}
{{- fail "memoryNodes serve no workers, so they copy to no GPU: set gpu in gpuNodes.config instead of config" -}}
{{- end -}}
{{- $set := dict
    "pool_size" "set pool.size of gpuNodes or memoryNodes"
    "huge_pages" "set pool.backing to hugepages"
    "pool_file" "set pool.backing to file"
    "role" "use gpuNodes and memoryNodes"
    "discovery_addr" "set heads"
    "membership" "set heads or etcdEndpoints"
    "etcd_endpoints" "set etcdEndpoints"
    "cluster_secret_file" "set clusterSecret.name"
    "socket_path" "set hostPaths.run for the folder on the host"
    "socket_group" "give the engines' pods the group 64201 (supplementalGroups)"
    "admin_socket" "peercachectl in the pod uses it, and nobody else may"
    "state_dir" "set hostPaths.state for the folder on the host"
    "node_id" "each daemon has the name of its node"
    "host" "each daemon has the address of its node"
    "metrics_enabled" "Kubernetes asks the port for metrics whether the daemon lives"
    "metrics_host" "Kubernetes asks the daemon at its own address whether it lives" -}}
{{- range $place, $config := dict "config" $values.config "gpuNodes.config" $values.gpuNodes.config "memoryNodes.config" $values.memoryNodes.config -}}
{{- range $key, $_ := $config -}}
{{- if hasKey $set $key -}}
{{- fail (printf "%s.%s: the chart sets this key; remove it: %s" $place $key (get $set $key)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
