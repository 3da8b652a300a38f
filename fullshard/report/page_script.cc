// SPDX-License-Identifier: Apache-2.0
// The interactive part of the page: values under the pointer, smoothing, zoom and other axes.
// Charts are drawn already; the script redraws them when the reader changes one of these.
#include "fullshard/report/page_assets.h"

namespace fullshard::report {
namespace {

constexpr std::string_view kScript = R"js(
const side = 1000, margin = 0.05;
const state = { smoothing: -1, y: 'auto', x: 'auto', range: null };

const readable = value => {
  const size = Math.abs(value);
  for (const [least, unit, name] of [[1e13, 1e12, ' T'], [1e10, 1e9, ' G'], [1e7, 1e6, ' M'], [1e4, 1e3, ' K']]) {
    if (size >= least) return +(value / unit).toPrecision(5) + name;
  }
  return size > 0 && size < 1e-3 ? (+value.toPrecision(3)).toExponential() : String(+value.toPrecision(5));
};

const linearTicks = (low, high, whole) => {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const sizes = [.5, 1, 2, 5, 10].map(times => times * power), found = sizes.findIndex(size => size >= rough);
  const apart = size => {
    const step = whole ? Math.max(1, size) : size, ticks = [];
    for (let i = Math.ceil(low / step); i * step <= high; ++i) ticks.push(i * step);
    return ticks;
  };
  const ticks = apart(sizes[found]);
  return ticks.length < 3 ? apart(sizes[found - 1]) : ticks;
};

const logarithmicTicks = (low, high) => {
  if (high / low < 8) return linearTicks(low, high);
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), ticks = [];
  const every = Math.ceil((last - first) / 8);
  const times = high / low > 2000 ? [1] : [1, 2, 5];
  for (let power = first; power <= last; power += every) {
    for (const factor of times) {
      const tick = factor * 10 ** power;
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  return ticks;
};

const scale = (low, high, isLogarithmic, isWhole) => {
  const to = isLogarithmic ? Math.log : value => value, back = isLogarithmic ? Math.exp : value => value;
  const from = to(low), span = to(high) - from || 1;
  return { place: value => (to(value) - from) / span, value: place => back(from + place * span),
           ticks: isLogarithmic ? logarithmicTicks(low, high) : linearTicks(low, high, isWhole) };
};

const meanOf = (points, weight) => {
  let mean = 0, sum = 0;
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) return [x, y];
    mean = weight * mean + (1 - weight) * y;
    sum = weight * sum + 1 - weight;
    return [x, mean / sum];
  });
};

const outline = (points, across, up, areDots) => {
  let text = '', isOpen = false;
  for (const [x, y] of points) {
    const px = across.place(x) * side, py = (1 - up.place(y)) * side;
    const isThere = Number.isFinite(px) && Number.isFinite(py);
    if (isThere) text += (areDots || !isOpen ? 'M' : 'L') + px.toFixed(1) + ' ' + py.toFixed(1) + (areDots ? 'h0' : '');
    isOpen = isThere;
  }
  return text;
};

class Plot {
  constructor(element) {
    this.element = element;
    const { low, high, bottom, scale: kind, across } = element.dataset;
    this.low = +low; this.high = +high;
    this.isLogarithmic = kind === 'log'; this.isAcrossLogarithmic = across === 'log';
    this.isFromZero = +bottom === 0 && !this.isLogarithmic;
    this.series = [];
    for (const path of element.querySelectorAll('path[data-values]')) {
      const words = path.dataset.values.split(' '), points = [];
      for (let i = 0; i + 1 < words.length; i += 2) points.push([+words[i], words[i + 1] === '-' ? NaN : +words[i + 1]]);
      if (points.length) this.series.push({ name: path.dataset.name, path, points, look: path.classList[0], isMean: 'mean' in path.dataset });
    }
    this.grid = element.querySelector('.grid');
    this.across = scale(this.low, this.high, this.isAcrossLogarithmic, true);
    this.rule = this.make('rule'); this.tip = this.make('tip'); this.chosen = this.make('chosen');
    if (this.series.length) this.listen();
  }

  make(name) {
    const part = document.createElement('span');
    part.className = name;
    return part;
  }

  // The curves that are drawn: with their own mean if the reader asked for one.
  curves() {
    if (state.smoothing < 0) return this.series.map(one => ({ ...one, from: one }));
    const curves = [];
    for (const one of this.series) {
      if (one.isMean) continue;
      const hasMean = one.look !== 'dots' && state.smoothing > 0;
      curves.push({ ...one, look: one.look === 'dots' ? 'dots' : hasMean ? 'faint' : 'line', from: one });
      if (hasMean) curves.push({ ...one, name: one.name + ', smoothed', look: 'line', points: meanOf(one.points, state.smoothing / 100), from: null });
    }
    return curves;
  }

  draw() {
    if (!this.series.length) return;
    const [low, high] = state.range || [this.low, this.high];
    const isAcrossLog = state.x === 'auto' ? this.isAcrossLogarithmic : state.x === 'log';
    const across = scale(isAcrossLog ? Math.max(low, Math.min(1, high / 2)) : low, high, isAcrossLog, true);
    const curves = this.curves();
    const seen = curves.flatMap(one => one.points.filter(([x, y]) => Number.isFinite(y) && x >= low && x <= high).map(point => point[1]));
    const positive = seen.filter(value => value > 0);
    const isLog = (state.y === 'auto' ? this.isLogarithmic : state.y === 'log') && positive.length > 0;
    const values = isLog ? positive : seen;
    let least = values.reduce((a, b) => Math.min(a, b), Infinity), most = values.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(least <= most)) { least = 0; most = 1; }
    if (isLog) { const room = Math.max((most / least) ** margin, 1.01); least /= room; most *= room; }
    else { const room = (most - least || Math.abs(most) || 1) * margin; least = this.isFromZero && state.y === 'auto' ? 0 : least - room; most += room; }
    const up = scale(least, most, isLog);
    for (const old of this.element.querySelectorAll('path:not(.grid):not([data-values]), span.up, span.across')) old.remove();
    for (const one of this.series) one.path.setAttribute('d', '');
    for (const one of curves) {
      const path = one.from ? one.from.path : one.path.cloneNode();
      if (!one.from) { path.removeAttribute('data-values'); one.path.after(path); }
      path.setAttribute('class', one.look + ' ' + one.path.classList[1]);
      path.setAttribute('d', outline(one.points, across, up, one.look === 'dots'));
    }
    this.grid.setAttribute('d', up.ticks.map(tick => 'M0 ' + ((1 - up.place(tick)) * side).toFixed(1) + 'H' + side).join(''));
    const label = (kind, text, edge, place) => {
      const part = this.make(kind);
      part.textContent = text; part.style[edge] = place * 100 + '%';
      this.element.append(part);
    };
    for (const tick of up.ticks) label('up', readable(tick), 'top', 1 - up.place(tick));
    for (const tick of across.ticks) label('across', readable(tick), 'left', across.place(tick));
    this.element.classList.toggle('zoomed', !!state.range || isAcrossLog);
    const title = this.element.closest('figure').querySelector('figcaption b');
    title.textContent = title.textContent.replace(/, logarithmic$/, '') + (isLog ? ', logarithmic' : '');
    this.across = across;
    this.shown = curves;
  }

  share(event) {
    const box = this.element.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  }

  listen() {
    const nearest = (points, x) => points.filter(point => Number.isFinite(point[1]))
      .reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a, [Infinity, NaN]);
    const plot = this.element;
    let start = null;
    const show = share => {
      const curves = this.shown || this.series;
      const wanted = this.across.value(share);
      const step = curves.reduce((best, one) => {
        const x = nearest(one.points, wanted)[0];
        return Math.abs(x - wanted) < Math.abs(best - wanted) ? x : best;
      }, Infinity);
      const place = Math.min(1, Math.max(0, this.across.place(step)));
      this.tip.textContent = 'step ' + step + curves.map(one => {
        const point = nearest(one.points, step);
        return Number.isFinite(point[1]) ? '\n' + one.name + ' ' + (+point[1].toPrecision(6)) + (point[0] === step ? '' : ' (step ' + point[0] + ')') : '';
      }).join('');
      this.rule.style.left = place * 100 + '%';
      this.tip.style.left = place < .5 ? 'calc(' + place * 100 + '% + 8px)' : '';
      this.tip.style.right = place < .5 ? '' : 'calc(' + (1 - place) * 100 + '% + 8px)';
      plot.append(this.rule, this.tip);
    };
    plot.addEventListener('pointermove', event => {
      const share = this.share(event);
      show(share);
      if (start === null) return;
      this.chosen.style.left = Math.min(start, share) * 100 + '%';
      this.chosen.style.width = Math.abs(share - start) * 100 + '%';
      plot.append(this.chosen);
    });
    plot.addEventListener('pointerdown', event => { if (event.button === 0) start = this.share(event); });
    const end = event => {
      const from = start, to = event ? this.share(event) : start;
      start = null;
      this.chosen.remove();
      if (from === null || Math.abs(to - from) < 0.02) return;
      const low = this.across.value(Math.min(from, to)), high = this.across.value(Math.max(from, to));
      if (high - low > 1) change({ range: [low, high] });
    };
    plot.addEventListener('pointerup', end);
    plot.addEventListener('pointerleave', () => { start = null; this.chosen.remove(); this.rule.remove(); this.tip.remove(); });
    plot.addEventListener('dblclick', () => change({ range: null }));
  }
}

const plots = [...document.querySelectorAll('.plot')].map(element => new Plot(element));
const key = location.pathname + '#charts';
let controls = null;
const change = (asked, keep = true) => {
  Object.assign(state, asked);
  for (const plot of plots) plot.draw();
  if (controls) controls();
  try { if (keep) sessionStorage.setItem(key, JSON.stringify(state)); } catch (error) { /* it is not kept then */ }
};

const first = document.querySelector('.charts');
if (first && plots.some(plot => plot.series.length)) {
  const make = (name, text, parts = []) => {
    const element = document.createElement(name);
    if (text) element.append(text);
    element.append(...parts);
    return element;
  };
  const slider = make('input'), shown = make('output'), whole = make('button', 'whole run');
  slider.type = 'range'; slider.min = 0; slider.max = 99; whole.type = 'button';
  const choice = name => {
    const select = make('select');
    for (const [value, text] of [['auto', 'automatic'], ['linear', 'linear'], ['log', 'logarithmic']]) {
      const option = make('option', text);
      option.value = value;
      select.append(option);
    }
    select.addEventListener('change', () => change({ [name]: select.value }));
    return select;
  };
  const y = choice('y'), x = choice('x');
  slider.addEventListener('input', () => change({ smoothing: +slider.value }));
  whole.addEventListener('click', () => change({ range: null }));
  controls = () => {
    slider.value = Math.max(0, state.smoothing);
    shown.textContent = state.smoothing < 0 ? 'auto' : (state.smoothing / 100).toFixed(2);
    y.value = state.y; x.value = state.x; whole.disabled = !state.range;
  };
  const bar = make('div', '', [make('label', 'smoothing', [slider, shown]), make('label', 'vertical axis', [y]),
    make('label', 'horizontal axis', [x]), whole, make('span', 'drag to zoom in, double-click to zoom out')]);
  bar.className = 'controls';
  first.before(bar);
  controls();
  try {
    const kept = sessionStorage.getItem(key);
    if (kept) change(JSON.parse(kept), false);
  } catch (error) { /* without storage a page starts afresh */ }
}

try {
  for (const part of document.querySelectorAll('details[id]')) {
    const name = location.pathname + '#' + part.id, kept = sessionStorage.getItem(name);
    if (kept) part.open = kept === 'open';
    part.addEventListener('toggle', () => sessionStorage.setItem(name, part.open ? 'open' : 'closed'));
  }
} catch (error) { /* a page without storage forgets what was open */ }
)js";

}  // namespace

std::string_view page_script() { return kScript; }

}  // namespace fullshard::report
