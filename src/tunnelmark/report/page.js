"use strict";
// Draws the figures with Plotly, which the page carries packed or has from a file beside it: the first ones at once.
(function () {
  const MOST_AT_ONCE = 1, MOST_DRAWN = 200;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();
  let printing = false;

  async function load() {
    const packed = document.getElementById("plotly-packed");
    if (window.Plotly || !packed) return;
    const bytes = Uint8Array.from(atob(packed.textContent), c => c.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(plain).text();
    document.head.append(script);
  }

  // Black lines and dark words cannot be seen on a dark page; paper is always light.
  function figure(data) {
    const night = dark.matches && !printing;
    const text = night ? data.textContent.replaceAll('"#000000"', '"#e8e8e8"') : data.textContent;
    const found = JSON.parse(text), layout = found.layout;
    layout.font.color = night ? "#e8e8e8" : "#222";
    for (const axis of [layout.xaxis, layout.yaxis]) {
      axis.gridcolor = night ? "#3a3f44" : "#e6e6e6";
      axis.zerolinecolor = night ? "#666" : "#bbb";
    }
    if (night && layout.modebar) layout.modebar.activecolor = "#e8e8e8";
    if (night) layout.hoverlabel = {bgcolor: "#202326", font: {color: "#e8e8e8"}};
    return found;
  }

  function draw(data) {
    const target = document.getElementById(data.dataset.for), made = figure(data);
    drawn.add(data);
    Plotly.react(target, made.data, made.layout, made.config);
  }

  function redraw() { drawn.forEach(draw); }

  function open(data) { return !data.closest("details:not([open])"); }

  function start(all) {
    const once = data => { if (!drawn.has(data)) draw(data); };
    const shown = all.filter(open);
    shown.slice(0, MOST_AT_ONCE).forEach(once);
    // The next ones one by one, so that the page can be scrolled meanwhile.
    const later = shown.slice(MOST_AT_ONCE, MOST_DRAWN);
    (function next() {
      if (later.length) { once(later.shift()); setTimeout(next, 0); }
    })();
    // So many that drawing all would fill the memory: each when it comes into view.
    const seen = new IntersectionObserver(function (entries) {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        once(document.querySelector('script[data-for="' + entry.target.id + '"]'));
      }
    }, {rootMargin: "600px"});
    shown.slice(MOST_DRAWN).forEach(data => seen.observe(document.getElementById(data.dataset.for)));
    // A figure that is drawn while it is folded away would have no width.
    document.querySelectorAll("details").forEach(part => part.addEventListener("toggle", function () {
      if (part.open) part.querySelectorAll("script.plot-data").forEach(data => open(data) && once(data));
    }));
    dark.addEventListener("change", redraw);
    window.addEventListener("beforeprint", () => { printing = true; all.filter(open).forEach(draw); });
    window.addEventListener("afterprint", () => { printing = false; redraw(); });
  }

  const all = Array.from(document.querySelectorAll("script.plot-data"));
  if (!all.length) return;
  load().then(() => start(all)).catch(function (error) {
    for (const data of all) {
      document.getElementById(data.dataset.for).textContent =
        "This browser cannot draw the figure (" + error + "); the tables have its values.";
    }
  });
})();
