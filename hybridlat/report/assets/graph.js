// The graph of cells as a heat map: zoom, search, open a cell to its kernels, walk it with keys.
class CellGraph {
  constructor(root, net, onSelect) {
    Object.assign(this, { root, net, onSelect, open: new Set(), current: 0, mode: "time" });
    this.panel = root.querySelector(".graph-panel");
    this.svg = d3.select(this.panel).append("svg").attr("role", "group")
      .attr("aria-label", `Graph of ${net.places.length} cells of ${net.network}`);
    this.moved = this.svg.append("g").attr("class", "moved");
    this.zoom = d3.zoom().scaleExtent([0.5, 12])
      .filter((event) => event.type === "wheel" ? event.ctrlKey || event.metaKey
        : event.type.startsWith("touch") ? event.touches.length > 1 : !event.button)
      .on("zoom", (event) => this.moved.attr("transform", event.transform));
    this.svg.call(this.zoom).on("dblclick.zoom", null);
    this.top = Math.max(...net.cells.map((cell) => cell.share / cell.count), 1e-9);
    this.wire();
    this.draw();
  }

  wire() {
    const button = (name, act) => this.root.querySelector(`[data-do=${name}]`)
      .addEventListener("click", act);
    button("closer", () => this.svg.transition().duration(150).call(this.zoom.scaleBy, 1.6));
    button("farther", () => this.svg.transition().duration(150).call(this.zoom.scaleBy, 1 / 1.6));
    button("whole", () => this.svg.transition().duration(150)
      .call(this.zoom.transform, d3.zoomIdentity));
    button("all", () => {
      const every = this.open.size === this.net.places.length;
      this.open = new Set(every ? [] : this.net.places.keys());
      this.draw();
    });
    this.root.querySelector("[data-do=colour]").addEventListener("change", (event) => {
      this.mode = event.target.value;
      this.colour();
    });
    this.search = this.root.querySelector("input[type=search]");
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.found.length) {
        event.preventDefault();
        const next = this.found.find((i) => i > this.current) ?? this.found[0];
        this.select(next, { reveal: true });
      }
    });
    this.panel.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const last = this.net.places.length - 1;
    const goal = { ArrowDown: this.current + 1, ArrowRight: this.current + 1,
      ArrowUp: this.current - 1, ArrowLeft: this.current - 1, Home: 0, End: last }[event.key];
    if (goal !== undefined) {
      this.select(Math.min(Math.max(goal, 0), last), { focus: true, reveal: true });
    } else if (event.key === "Enter" || event.key === " ") {
      this.toggle(this.current, true);
    } else if (event.key === "+" || event.key === "=") {
      this.svg.call(this.zoom.scaleBy, 1.6);
    } else if (event.key === "-") {
      this.svg.call(this.zoom.scaleBy, 1 / 1.6);
    } else if (event.key === "0") {
      this.svg.call(this.zoom.transform, d3.zoomIdentity);
    } else if (event.key === "/") {
      this.search.focus();
    } else {
      return;
    }
    event.preventDefault();
  }

  draw() {
    const wide = this.panel.clientWidth || 1000;
    const narrow = wide < 560;
    const most = narrow ? 900 : 560;
    const layout = layoutOf(this.net, this.open, wide, most);
    this.boxes = layout.boxes;
    const [width, height] = [layout.width + 16, layout.height + 36];
    this.svg.attr("viewBox", `-8 -18 ${width} ${height}`);
    // As tall as the whole needs, at its own size at most, within what a screen shows.
    const fit = Math.min(1.15, wide / width) * height;
    this.panel.style.height = `${Math.min(Math.max(fit, 200), most + 60)}px`;
    // What is said of a cell scrolls beside the graph rather than pushing it up.
    const beside = window.matchMedia("(min-width: 861px)").matches;
    this.root.querySelector("aside").style.maxHeight = beside
      ? `${Math.max(this.panel.clientHeight, 340)}px` : "";
    this.moved.selectAll("path.link").data(layout.links).join("path")
      .attr("class", "link").lower()
      .attr("d", ([from, to]) => linkPath(this.boxes[from], this.boxes[to]));
    const groups = this.moved.selectAll("g.place").data(this.net.places).join(
      (enter) => this.entered(enter.append("g").attr("class", "place")));
    groups.attr("transform", (_, i) => `translate(${this.boxes[i].x},${this.boxes[i].y})`)
      .attr("aria-expanded", (_, i) => this.open.has(i))
      .attr("tabindex", (_, i) => (i === this.current ? 0 : -1))
      .classed("current", (_, i) => i === this.current);
    groups.select("rect.box").attr("width", (_, i) => this.boxes[i].width)
      .attr("height", (_, i) => this.boxes[i].height);
    groups.select("text.sign").attr("x", (_, i) => this.boxes[i].width - 10)
      .text((_, i) => (this.open.has(i) ? "−" : "+"));
    const self = this;
    groups.each(function (place, i) { self.kernels(d3.select(this), place, i); });
    this.colour();
    this.find();
  }

  entered(groups) {
    const cell = (place) => this.net.cells[place.cell];
    groups.attr("role", "button").attr("data-place", (_, i) => i)
      .attr("aria-label", (place) => this.words(place));
    groups.append("title").text((place) => this.words(place));
    groups.append("rect").attr("class", "box").attr("rx", 5);
    groups.append("text").attr("class", "where").attr("x", 9).attr("y", 18)
      .text((place) => fitted(place.path || cell(place).label, CELL.width - 34, 12,
        { weight: 600, front: true }));
    groups.append("text").attr("class", "what").attr("x", 9).attr("y", 34)
      .text((place) => fitted(cell(place).what || cell(place).label, CELL.width - 16, 11));
    groups.append("text").attr("class", "sign").attr("y", 18).attr("aria-hidden", "true");
    groups.append("g").attr("class", "kernels");
    groups.on("click", (event, place) => this.toggle(this.net.places.indexOf(place), true));
    groups.on("focus", (event, place) => {
      const i = this.net.places.indexOf(place);
      if (i !== this.current) this.select(i, {});
    });
    return groups;
  }

  kernels(group, place, i) {
    const cell = this.net.cells[place.cell];
    const inside = this.open.has(i) ? this.boxes[i].inside : null;
    const holder = group.select("g.kernels").attr("transform",
      inside ? `translate(${(inside.width - inside.inner) / 2},${CELL.head})` : null);
    holder.selectAll("path").data(inside ? inside.paths : []).join("path").attr("class", "link")
      .attr("d", (path) => path).attr("transform", inside ? `translate(0,${inside.bottom})` : null);
    const made = holder.selectAll("g.kernel").data(inside ? cell.kernels : []).join((enter) => {
      const g = enter.append("g").attr("class", "kernel");
      g.append("title");
      g.append("rect").attr("rx", 4).attr("width", KERNEL.width).attr("height", KERNEL.height);
      g.append("text").attr("class", "op").attr("x", 7).attr("y", 14);
      g.append("text").attr("class", "names").attr("x", 7).attr("y", 27);
      return g;
    });
    made.attr("transform", (_, k) => `translate(${inside.corners[k].x},${inside.corners[k].y})`);
    made.select("title").text((kernel, k) => `${kernel.op}\n${kernel.what}\n${place.names[k].join(", ")}`);
    made.select("text.op").text((kernel) => fitted(kernel.op, KERNEL.width - 12, 11, { weight: 600 }));
    made.select("text.names").text((kernel, k) => fitted(
      place.names[k].join(", ") || "by the engine", KERNEL.width - 12, 10, { front: true }));
  }

  words(place) {
    const cell = this.net.cells[place.cell];
    const limit = cell.limit ? `, limited by ${cell.limit}` : "";
    return `${place.path || cell.label}: ${cell.what || ""} ${cell.ops}, ${cell.latency} `
      + `${reachOf(cell)}, ${percent(cell.share / cell.count)} of the time, ${cell.source}${limit}`;
  }

  heat(cell) {
    if (this.mode === "time") return Math.sqrt(cell.share / cell.count / this.top);
    if (this.mode === "reach") return cell.limit_share === null ? null : Math.min(cell.limit_share, 1);
    if (this.mode === "doubt") {
      return cell.half_width_share === null ? null : Math.min(cell.half_width_share / 0.5, 1);
    }
    return null;
  }

  colour() {
    this.root.dataset.mode = this.mode;
    this.moved.selectAll("g.place").each((place, i, all) => {
      const cell = this.net.cells[place.cell];
      const heat = this.heat(cell);
      const group = d3.select(all[i]);
      group.style("--heat", heat === null ? null : heat.toFixed(3))
        .classed("unknown", heat === null && !["limit", "source"].includes(this.mode));
      group.attr("data-limit", cell.limit || "none").attr("data-source", cell.source);
    });
    this.root.querySelector(".legend").replaceChildren(...legendOf(this.mode, this.top));
  }

  find() {
    const wanted = this.search.value.trim().toLowerCase();
    const texts = this.texts ??= this.net.places.map((place) => {
      const cell = this.net.cells[place.cell];
      return [place.path, cell.ops, cell.operators, cell.what, cell.signature, cell.limit, cell.source,
        ...place.names.flat()].join(" ").toLowerCase();
    });
    this.found = wanted ? [...texts.keys()].filter((i) => texts[i].includes(wanted)) : [];
    const hits = new Set(this.found);
    this.moved.selectAll("g.place").classed("dimmed", (_, i) => wanted !== "" && !hits.has(i))
      .classed("hit", (_, i) => hits.has(i));
    this.root.querySelector(".found").textContent = wanted
      ? `${hits.size} of ${texts.length} cells` : "";
  }

  select(i, { focus = false, reveal = false }) {
    this.current = i;
    this.moved.selectAll("g.place").classed("current", (_, k) => k === i)
      .attr("tabindex", (_, k) => (k === i ? 0 : -1));
    if (reveal) this.reveal(i);
    if (focus) this.moved.select(`[data-place="${i}"]`).node().focus({ preventScroll: true });
    this.onSelect(i);
  }

  // Bring a place into view: nothing moves where it is to be seen already.
  reveal(i) {
    const transform = d3.zoomTransform(this.svg.node());
    const view = this.svg.node().viewBox.baseVal;
    const box = this.boxes[i];
    const [x, y] = transform.apply([box.x + box.width / 2, box.y + box.height / 2]);
    const inside = x > view.x && x < view.x + view.width && y > view.y && y < view.y + view.height;
    if (!inside) {
      this.svg.call(this.zoom.translateTo, box.x + box.width / 2, box.y + box.height / 2);
    }
  }

  toggle(i, focus) {
    if (this.open.has(i)) this.open.delete(i); else this.open.add(i);
    this.current = i;
    this.draw();
    if (this.open.has(i)) this.approach(i);
    else if (!this.open.size) this.svg.call(this.zoom.transform, d3.zoomIdentity);
    this.select(i, { focus });
  }

  // An open cell whose words would be too small to read is brought near.
  approach(i) {
    const view = this.svg.node().viewBox.baseVal;
    const scale = Math.min(this.panel.clientWidth / view.width, this.panel.clientHeight / view.height);
    const box = this.boxes[i];
    const near = Math.min(view.width / (box.width + 40), view.height / (box.height + 40), 1 / scale);
    if (scale > 0.75 || near < 1.05) return;
    this.svg.call(this.zoom.transform, d3.zoomIdentity
      .translate(view.x + view.width / 2, view.y + view.height / 2).scale(near)
      .translate(-box.x - box.width / 2, -box.y - box.height / 2));
  }
}

const legendOf = (mode, top) => {
  const ramp = (low, high) => [html("span", {}, low), html("i", { class: "ramp" }), html("span", {}, high)];
  if (mode === "time") return ramp("0 %", `${percent(top)} of the time`);
  if (mode === "reach") return [...ramp("far from its limit", "at its limit"), html("i", { class: "key unknown" }, ""), html("span", {}, "not known")];
  if (mode === "doubt") return ramp("sure", "±50 % and more");
  const kinds = mode === "limit"
    ? { compute: "compute", memory: "memory", launch: "launch", none: "not known" }
    : { measured: "measured", predicted: "predicted", unsupported: "no latency" };
  return Object.entries(kinds).flatMap(([kind, words]) =>
    [html("i", { class: `key ${kind}` }), html("span", {}, words)]);
};
