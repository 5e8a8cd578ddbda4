// Draws every ".plot" from its "data-figure". The page has two functions: isVisible(trace, layout),
// and clicked(point, event, layout), which is not called on a touch screen.
const plots = [...document.querySelectorAll(".plot")];
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)").matches;

// Plotly needs the values of the colors; the browser knows them for the current scheme.
function colored(text) {
  const probe = document.body.appendChild(document.createElement("i"));
  const colors = text.replace(/var\(--[\w-]+\)/g, (name) => {
    probe.style.color = name;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return JSON.parse(colors);
}

const axis = { automargin: true, color: "var(--text)", exponentformat: "e", gridcolor: "var(--grid)", minexponent: 4, minorloglabels: "complete", nticks: 6, zeroline: false };
const common = JSON.stringify({
  dragmode: touch ? false : "zoom", // a finger scrolls the page
  font: { color: "var(--text)", family: "system-ui, sans-serif", size: 12 },
  hoverlabel: { bgcolor: "var(--paper)", bordercolor: "var(--grid)", font: { color: "var(--text)" } },
  hovermode: "closest",
  margin: { b: 40, l: 40, r: 12, t: 16 },
  modebar: { bgcolor: "rgba(0,0,0,0)" },
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  showlegend: false,
});

function draw(plot) {
  const { data, layout } = colored(plot.dataset.figure);
  for (const trace of data) trace.visible = isVisible(trace, layout);
  const { xaxis, yaxis, ...rest } = layout;
  const base = colored(JSON.stringify(axis));
  const whole = { ...colored(common), ...rest, xaxis: { ...base, exponentformat: "SI", minexponent: 3, ...xaxis }, yaxis: { ...base, ...yaxis } };
  plot.querySelector("noscript")?.remove();
  Plotly.react(plot, data, whole, { displayModeBar: touch ? false : "hover", displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]], responsive: true });
  if (!plot.dataset.drawn && !touch) plot.on("plotly_click", ({ event, points }) => clicked(points[0], event, layout));
  plot.dataset.drawn = "yes";
}

function redraw() {
  plots.filter((plot) => plot.dataset.drawn).forEach(draw);
}

dark.addEventListener("change", redraw);
addEventListener("beforeprint", () => {
  document.documentElement.style.colorScheme = "light"; // paper is white
  plots.forEach(draw);
});
addEventListener("afterprint", () => {
  document.documentElement.style.colorScheme = "";
  redraw();
});

// Charts are drawn when they come near the window: a page may have hundreds.
const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting && !target.dataset.drawn) draw(target);
  }
}, { rootMargin: "600px" });
plots.forEach((plot) => near.observe(plot));
