// The last minutes, kept by this page: samples of counters become rates between two of them.

export const SAMPLES_MAX = 450; // 15 minutes at one in 2 seconds

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
    evictions: summary.pool_evictions,
  };
}

const COUNTED = [
  "asked", "found_pool", "found_peer", "found_disk", "found_peer_disk", "evicted", "tokens",
  "get_bytes", "set_bytes", "set_pages", "evictions",
];

export class History {
  constructor() {
    this.before = new Map(); // node id -> {incarnation, uptime, counters}
    this.samples = []; // {at, nodes: Map(node id -> {seconds, grown, summary})}
  }

  // What grew between the last two summaries of each node. A restart begins from zero.
  add(nodes, at) {
    const grown = new Map();
    for (const node of nodes) {
      if (!node.summary) continue;
      const now = counters(node.summary);
      const last = this.before.get(node.node_id);
      const entry = { summary: node.summary, seconds: 0, grown: null };
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
      if (node.state !== "silent") grown.set(node.node_id, entry);
    }
    this.samples.push({ at, nodes: grown });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
  }

  // Sums over one node, or all: {seconds, grown} of one sample; null if nothing is known.
  static sum(sample, nodeId) {
    const entries = nodeId ? [sample.nodes.get(nodeId)] : [...sample.nodes.values()];
    const found = { rates: {}, keys: {}, used: 0, capacity: 0, diskUsed: 0, diskCapacity: 0 };
    let any = false;
    for (const entry of entries) {
      if (!entry) continue;
      found.used += entry.summary.pool_used_bytes;
      found.capacity += entry.summary.pool_capacity_bytes;
      found.diskUsed += entry.summary.disk_used_bytes;
      found.diskCapacity += entry.summary.disk_capacity_bytes;
      if (!entry.grown) continue;
      any = true;
      for (const [name, value] of Object.entries(entry.grown)) {
        found.keys[name] = (found.keys[name] ?? 0) + value;
        found.rates[name] = (found.rates[name] ?? 0) + value / entry.seconds;
      }
    }
    found.known = any;
    return found;
  }

  // The same over the last `samples`, for a steady number: sums of keys, means of rates.
  recent(nodeId, samples = 15) {
    const keys = {};
    const rates = {};
    let counted = 0;
    for (const sample of this.samples.slice(-samples)) {
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

// Of the keys that workers looked for, those found; null: nobody looked.
export function hitRate(keys) {
  return keys.asked > 0 ? found(keys) / keys.asked : null;
}

// What it would be if each pool were twice as large.
export function hitRateOfTwice(keys) {
  return keys.asked > 0 ? (found(keys) + keys.evicted) / keys.asked : null;
}

const found = (keys) =>
  keys.found_pool + keys.found_peer + keys.found_disk + keys.found_peer_disk;

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
