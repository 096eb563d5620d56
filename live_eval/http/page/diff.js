// What differs between two texts. Pure. By words, or by characters where a text has no spaces; bounded, so that
// two long answers never hold up the page.

const MOST_CELLS = 1_000_000;

/** [[kind, text], ...] for each side; kind is "same" or "other". */
export function diff(left, right) {
  const spaced = /\s/.test(left.trim()) || /\s/.test(right.trim());
  const cut = (text) => (spaced ? (text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []) : [...text]);
  const [a, b] = [cut(left), cut(right)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const middle = common(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const flags = (tokens, kept) => tokens.map((token, at) => [at < start || at >= tokens.length - end || kept.has(at - start) ? 'same' : 'other', token]);
  return [joined(flags(a, middle[0])), joined(flags(b, middle[1]))];
}

/** Places of a longest common subsequence in each list; none where that would be too much work. */
function common(a, b) {
  const kept = [new Set(), new Set()];
  if (a.length === 0 || b.length === 0 || a.length * b.length > MOST_CELLS) return kept;
  const wide = b.length + 1;
  const best = new Uint32Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      best[i * wide + j] = a[i] === b[j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
  for (let i = 0, j = 0; i < a.length && j < b.length; )
    if (a[i] === b[j]) kept[0].add(i++), kept[1].add(j++);
    else if (best[(i + 1) * wide + j] >= best[i * wide + j + 1]) i += 1;
    else j += 1;
  return kept;
}

function joined(parts) {
  const found = [];
  for (const [kind, text] of parts)
    if (found.length && found.at(-1)[0] === kind) found.at(-1)[1] += text;
    else found.push([kind, text]);
  return found;
}
