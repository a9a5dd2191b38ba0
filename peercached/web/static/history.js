// The last hour: points that the nodes kept, and then samples that this page took. Counters become
// growth between two samples.

const FINE_MAX = 450; // 15 minutes at one in 2 seconds
const COARSE_MAX = 360; // an hour at one in 10 seconds
const COARSE_OF = 5; // so many fine samples become a coarse one
const RECENT_MS = 30000;
const RECENT_MAX = 15; // at most so many fine ones

// Half and 99 % of the calls of a kind, in seconds.
export const KINDS = ["get", "exists", "set"];
const LATENCIES = KINDS.flatMap((kind) => [`${kind}_p50`, `${kind}_p99`]);

// Of one node's summary: what only grows.
function counters(summary) {
  return {
    asked: summary.asked,
    ...Object.fromEntries(Object.entries(summary.found).map(([tier, n]) => [`found_${tier}`, n])),
    evicted: summary.evicted["2x"] ?? 0,
    tokens: summary.tokens_found,
    get_bytes: summary.get_bytes,
    set_bytes: summary.set_bytes,
    set_pages: summary.set_pages,
    rdma_bytes: summary.rdma_bytes ?? 0,
    tcp_bytes: summary.tcp_bytes ?? 0,
    evictions: summary.pool_evictions,
    given: summary.pool_given ?? 0,
  };
}

const COUNTED = [
  "asked", "found_pool", "found_peer", "found_disk", "found_peer_disk", "found_store",
  "evicted", "tokens", "get_bytes", "set_bytes", "set_pages", "rdma_bytes", "tcp_bytes", "evictions", "given",
];
const ROOM = ["used", "capacity", "disk_used", "disk_capacity"];

const room = (summary) => ({
  used: summary.pool_used_bytes,
  capacity: summary.pool_capacity_bytes,
  disk_used: summary.disk_used_bytes,
  disk_capacity: summary.disk_capacity_bytes,
});

export class History {
  constructor() {
    this.before = new Map(); // node id -> {incarnation, uptime, counters}
    // {at, nodes: Map(node id -> {seconds, grown, room}), latencies, partial}
    this.coarse = [];
    this.fine = [];
  }

  // Without the first of this page, which has no growth: it would cut the curves in two.
  get samples() {
    const all = [...this.coarse, ...this.fine];
    return this.coarse.length ? all.filter((sample) => History.sum(sample, "").known
      || sample.partial) : all;
  }

  get last() {
    return this.fine[this.fine.length - 1];
  }

  // Growth between the last two summaries of each node. A restart begins from zero.
  add(nodes, at, latencies) {
    const seen = new Map();
    for (const node of nodes) {
      if (!node.summary) continue;
      const now = counters(node.summary);
      const last = this.before.get(node.node_id);
      const entry = { room: room(node.summary), seconds: 0, grown: null };
      if (last && last.incarnation === node.incarnation) {
        entry.seconds = node.summary.uptime_s - last.uptime;
        if (entry.seconds > 0) {
          entry.grown = {};
          for (const name of COUNTED) {
            entry.grown[name] = Math.max(0, (now[name] ?? 0) - (last.counters[name] ?? 0));
          }
        }
      }
      if (!last || last.incarnation !== node.incarnation || entry.seconds > 0) {
        this.before.set(node.node_id, {
          incarnation: node.incarnation, uptime: node.summary.uptime_s, counters: now,
        });
      }
      if (node.state !== "silent") seen.set(node.node_id, entry);
    }
    this.fine.push({ at, nodes: seen, latencies });
    if (this.fine.length > FINE_MAX) this.coarse.push(merged(this.fine.splice(0, COARSE_OF)));
    if (this.coarse.length > COARSE_MAX) this.coarse.shift();
  }

  // Takes the points that nodes kept before this page was opened (/api/v1/curves). `partial`: they
  // are not of all nodes, so they have no sum.
  recall(documents, ownId, partial) {
    const samples = new Map();
    for (const { node_id: nodeId, at, seconds, series } of documents) {
      at.forEach((time, i) => {
        const sample = samples.get(time) ?? { at: time * 1000, nodes: new Map(), partial };
        samples.set(time, sample);
        const pick = (names) => Object.fromEntries(names.map((name) => [name, series[name]?.[i] ?? 0]));
        sample.nodes.set(nodeId, { seconds: seconds[i], grown: pick(COUNTED), room: pick(ROOM) });
        if (nodeId !== ownId) return;
        sample.latencies = LATENCIES.map((name) => series[name]?.[i] ?? null);
      });
    }
    const opened = this.fine[0]?.at ?? Infinity;
    this.coarse = [...samples.values()].filter(({ at }) => at < opened).sort((a, b) => a.at - b.at);
  }

  // Sums over one node, or all, of one sample. `known`: there are rates.
  static sum(sample, nodeId) {
    sample.sums ??= new Map();
    if (!sample.sums.has(nodeId)) sample.sums.set(nodeId, History.summed(sample, nodeId));
    return sample.sums.get(nodeId);
  }

  static summed(sample, nodeId) {
    const found = { rates: {}, keys: {}, known: false };
    for (const name of ROOM) found[name] = 0;
    if (sample.partial && !nodeId) return found;
    for (const entry of nodeId ? [sample.nodes.get(nodeId)] : sample.nodes.values()) {
      if (!entry) continue;
      for (const name of ROOM) found[name] += entry.room[name];
      if (!entry.grown) continue;
      found.known = true;
      for (const [name, value] of Object.entries(entry.grown)) {
        found.keys[name] = (found.keys[name] ?? 0) + value;
        found.rates[name] = (found.rates[name] ?? 0) + value / entry.seconds;
      }
    }
    return found;
  }

  // The same over the last 30 s, for a steady number: sums of keys, means of rates.
  recent(nodeId) {
    const keys = {};
    const rates = {};
    let counted = 0;
    const since = this.last.at - RECENT_MS;
    for (const sample of [...this.coarse.slice(-COARSE_OF), ...this.fine.slice(-RECENT_MAX)]) {
      if (sample.at <= since) continue;
      const found = History.sum(sample, nodeId);
      if (!found.known) continue;
      counted += 1;
      for (const name of Object.keys(found.keys)) {
        keys[name] = (keys[name] ?? 0) + found.keys[name];
        rates[name] = (rates[name] ?? 0) + found.rates[name];
      }
    }
    for (const name of Object.keys(rates)) rates[name] /= counted;
    return { keys, rates, known: counted > 0 };
  }
}

// One sample of several: their growth together, and the last of all else.
function merged(samples) {
  const nodes = new Map();
  for (const sample of samples) {
    for (const [nodeId, entry] of sample.nodes) {
      const sum = nodes.get(nodeId) ?? { seconds: 0, grown: null };
      nodes.set(nodeId, sum);
      sum.room = entry.room;
      if (!entry.grown) continue;
      sum.seconds += entry.seconds;
      sum.grown ??= {};
      for (const [name, value] of Object.entries(entry.grown)) {
        sum.grown[name] = (sum.grown[name] ?? 0) + value;
      }
    }
  }
  const { at, latencies } = samples[samples.length - 1];
  return { at, nodes, latencies };
}

// Of the keys that workers looked for, those found; null: nobody looked.
export function hitRate(keys) {
  return keys.asked > 0 ? found(keys) / keys.asked : null;
}

// The hit rate if each pool were twice as large.
export function hitRateOfTwice(keys) {
  return keys.asked > 0 ? (found(keys) + keys.evicted) / keys.asked : null;
}

const found = (keys) =>
  keys.found_pool + keys.found_peer + keys.found_disk + keys.found_peer_disk + keys.found_store;

// The value that a share of the counted calls stayed below: within its bucket, by interpolation.
export function percentile(bounds, counts, share) {
  const total = counts.reduce((a, b) => a + b, 0);
  if (total === 0) return null;
  let left = share * total;
  for (let i = 0; i < counts.length; i += 1) {
    if (left <= counts[i] && counts[i] > 0) {
      const low = i ? bounds[i - 1] : 0;
      const high = i < bounds.length ? bounds[i] : bounds[bounds.length - 1];
      return (low + ((high - low) * left) / counts[i]) / 1e6;
    }
    left -= counts[i];
  }
  return bounds[bounds.length - 1] / 1e6;
}
