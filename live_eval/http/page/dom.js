// Making and changing elements. Texts only ever become text nodes and attributes; no markup is parsed, so what
// a model answers or a path contains can do nothing here.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'text') element.textContent = value;
    else if (name in PROPERTIES) element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PROPERTIES = { value: 1, checked: 1, disabled: 1, hidden: 1 };

/** An HTML element: h('button', {class: 'button', onclick: f}, 'Cancel'). */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Replace what is in `element`; focus stays on the part with the same data-focus. */
export function put(element, ...children) {
  const focus = focusKey(element);
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  restore(element, focus);
}

function focusKey(element) {
  const active = document.activeElement;
  return active && active !== element && element.contains(active) ? active.dataset.focus : undefined;
}

function restore(element, key) {
  if (key === undefined) return;
  for (const each of element.querySelectorAll('[data-focus]')) if (each.dataset.focus === key) return void each.focus();
}

/**
 * Keep one child of `parent` for each item: kept ones are updated in place, so that a click or a focus on
 * them survives. make(item) returns {node, update(item)}.
 */
export function keyed(parent, items, key, make) {
  const kept = (parent.keyedParts ??= new Map());
  const wanted = new Map();
  for (const item of items) {
    const name = key(item);
    let part = kept.get(name);
    if (!part) part = make(item);
    part.update(item);
    wanted.set(name, part);
  }
  for (const [name, part] of kept) if (!wanted.has(name)) part.node.remove();
  let next = parent.firstChild;
  for (const part of wanted.values()) {
    if (part.node === next) next = next.nextSibling;
    else parent.insertBefore(part.node, next);
  }
  parent.keyedParts = wanted;
}

/** A slot that is filled anew only if `value` differs from the last one. */
export function slot(element, draw) {
  let last;
  return (value, ...more) => {
    const now = JSON.stringify(value);
    if (now === last) return;
    last = now;
    put(element, ...[draw(value, ...more)].flat());
  };
}

/** Say something to screen readers. */
export function announce(text) {
  document.getElementById('announce').textContent = text;
}

/** Show a note for some seconds. */
export function toast(...children) {
  const node = h('div', { class: 'toast' }, ...children);
  document.getElementById('toasts').append(node);
  setTimeout(() => node.remove(), 8000);
}
