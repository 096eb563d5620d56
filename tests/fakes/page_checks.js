// What tests ask of an open page as a whole.

/** What sticks out to the left or right of the screen. */
var overflow = () => {
  const found = [];
  const { scrollWidth } = document.documentElement;
  if (scrollWidth > innerWidth) found.push(`page: ${scrollWidth}`);
  for (const element of document.querySelectorAll('main *, header *')) {
    const box = element.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    if (element.closest('svg, .tabs, .segments.scroll, .hidden-text')) continue;
    if (box.right > innerWidth + 1 || box.left < -1) found.push(`${element.tagName}.${element.className}: ${box.right}`);
  }
  return found.slice(0, 10);
};

const parse = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
const linear = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);

const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};

/** Texts with a contrast below 4.5 to what is behind them (WCAG 2.2, AA). */
var faintTexts = () => {
  const found = new Set();
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.getBoundingClientRect().width < 2) continue;
    if (element.closest('[disabled], .hidden-text, option, noscript, .span-text.on')) continue;
    const style = getComputedStyle(element);
    const text = luminance(parse(element.tagName === 'text' ? style.fill : style.color));
    const ground = luminance(behind(element));
    const contrast = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    const name = `${element.tagName}.${element.getAttribute('class')} ${element.textContent.slice(0, 30)}`;
    if (contrast < 4.5) found.add(`${name}: ${contrast.toFixed(2)}`);
  }
  return [...found].slice(0, 10);
};
