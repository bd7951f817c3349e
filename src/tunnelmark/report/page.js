"use strict";
// Unpacks plotly.js, which the page carries packed, and draws the figures: the first ones at once.
(function () {
  const MOST_AT_ONCE = 12, MOST_DRAWN = 200;

  // RFC 1951. Synchronous on purpose: a page that is printed or photographed has its figures.
  function inflate(packed) {
    let at = 0, held = 0, bits = 0, out = new Uint8Array(packed.length * 4), length = 0;
    function take(count) {
      while (bits < count) { held |= packed[at++] << bits; bits += 8; }
      const value = held & ((1 << count) - 1);
      held >>>= count; bits -= count;
      return value;
    }
    function table(lengths) {
      let most = 0;
      for (const l of lengths) if (l > most) most = l;
      const lookup = new Uint32Array(1 << most);
      let code = 0;
      for (let size = 1; size <= most; size++) {
        for (let symbol = 0; symbol < lengths.length; symbol++) {
          if (lengths[symbol] !== size) continue;
          let turned = 0;
          for (let bit = 0; bit < size; bit++) turned |= ((code >> bit) & 1) << (size - 1 - bit);
          for (let i = turned; i < lookup.length; i += 1 << size) lookup[i] = (symbol << 4) | size;
          code++;
        }
        code <<= 1;
      }
      return {lookup: lookup, most: most};
    }
    function symbol(codes) {
      while (bits < codes.most && at < packed.length) { held |= packed[at++] << bits; bits += 8; }
      const found = codes.lookup[held & ((1 << codes.most) - 1)], size = found & 15;
      held >>>= size; bits -= size;
      return found >> 4;
    }
    function room(more) {
      if (length + more <= out.length) return;
      const larger = new Uint8Array(Math.max(out.length * 2, length + more));
      larger.set(out); out = larger;
    }
    const EXTRA = [0,0,0,0,0,0,0,0,1,1,1,1,2,2,2,2,3,3,3,3,4,4,4,4,5,5,5,5,0];
    const BASE = [3,4,5,6,7,8,9,10,11,13,15,17,19,23,27,31,35,43,51,59,67,83,99,115,131,163,195,227,258];
    const FAR_EXTRA = [0,0,0,0,1,1,2,2,3,3,4,4,5,5,6,6,7,7,8,8,9,9,10,10,11,11,12,12,13,13];
    const FAR = [1,2,3,4,5,7,9,13,17,25,33,49,65,97,129,193,257,385,513,769,1025,1537,2049,3073,4097,6145,8193,12289,16385,24577];
    const ORDER = [16,17,18,0,8,7,9,6,10,5,11,4,12,3,13,2,14,1,15];
    let last = 0;
    while (!last) {
      last = take(1);
      const kind = take(2);
      if (kind === 0) {
        // Whole bytes that were read ahead go back.
        at -= bits >> 3; held = 0; bits = 0;
        const size = packed[at] | (packed[at + 1] << 8);
        at += 4; room(size);
        out.set(packed.subarray(at, at + size), length);
        at += size; length += size;
        continue;
      }
      let near, far;
      if (kind === 1) {
        const fixed = new Uint8Array(288);
        fixed.fill(8, 0, 144); fixed.fill(9, 144, 256); fixed.fill(7, 256, 280); fixed.fill(8, 280);
        near = table(fixed); far = table(new Uint8Array(30).fill(5));
      } else {
        const many = take(5) + 257, distances = take(5) + 1, codes = take(4) + 4;
        const sizes = new Uint8Array(19);
        for (let i = 0; i < codes; i++) sizes[ORDER[i]] = take(3);
        const how = table(sizes), lengths = new Uint8Array(many + distances);
        for (let i = 0; i < lengths.length;) {
          const next = symbol(how);
          if (next < 16) { lengths[i++] = next; continue; }
          const value = next === 16 ? lengths[i - 1] : 0;
          const again = next === 16 ? 3 + take(2) : next === 17 ? 3 + take(3) : 11 + take(7);
          lengths.fill(value, i, i + again); i += again;
        }
        near = table(lengths.subarray(0, many)); far = table(lengths.subarray(many));
      }
      for (;;) {
        const next = symbol(near);
        if (next === 256) break;
        room(258);
        if (next < 256) { out[length++] = next; continue; }
        const size = BASE[next - 257] + take(EXTRA[next - 257]);
        const way = symbol(far), back = FAR[way] + take(FAR_EXTRA[way]);
        for (let i = 0; i < size; i++, length++) out[length] = out[length - back];
      }
    }
    return out.subarray(0, length);
  }

  let loaded = false;
  function load() {
    if (loaded) return;
    loaded = true;
    const text = atob(document.getElementById("plotly-packed").textContent);
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(inflate(Uint8Array.from(text, c => c.charCodeAt(0))));
    document.head.append(script);
  }
  function draw(data) {
    if (data.dataset.drawn) return;
    data.dataset.drawn = "1";
    const target = document.getElementById(data.dataset.for);
    try {
      load();
      const figure = JSON.parse(data.textContent);
      Plotly.newPlot(target, figure.data, figure.layout, figure.config);
    } catch (error) {
      target.textContent = "This browser cannot draw the figure (" + error + "); tunnelmark report --figures writes it as SVG and PDF.";
    }
  }
  const all = Array.from(document.querySelectorAll("script.plot-data"));
  function open(data) { return !data.closest("details:not([open])"); }
  const shown = all.filter(open);
  shown.slice(0, MOST_AT_ONCE).forEach(draw);
  // The next ones one by one, so that the page can be scrolled meanwhile.
  const later = shown.slice(MOST_AT_ONCE, MOST_DRAWN);
  (function next() {
    if (later.length) { draw(later.shift()); setTimeout(next, 0); }
  })();
  // So many that drawing all would fill the memory: each when it comes into view.
  if (window.IntersectionObserver) {
    const seen = new IntersectionObserver(function (entries) {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(document.querySelector('script[data-for="' + entry.target.id + '"]'));
      }
    }, {rootMargin: "600px"});
    shown.slice(MOST_DRAWN).forEach(data => seen.observe(document.getElementById(data.dataset.for)));
  } else {
    shown.slice(MOST_DRAWN).forEach(draw);
  }
  // A figure that is drawn while it is folded away would have no width.
  document.querySelectorAll("details").forEach(part => part.addEventListener("toggle", function () {
    if (part.open) part.querySelectorAll("script.plot-data").forEach(data => open(data) && draw(data));
  }));
  window.addEventListener("beforeprint", () => all.filter(open).forEach(draw));
})();
