// Plots: the roofline of one network, the curve over batches, networks side by side.
const frameOf = (panel, label, height, margin) => {
  const width = Math.max(panel.clientWidth || 640, 280);
  panel.replaceChildren();
  const svg = d3.select(panel).append("svg").attr("viewBox", `0 0 ${width} ${height}`)
    .attr("role", "img").attr("aria-label", label);
  return { svg, width, height, x: [margin.left, width - margin.right],
    y: [height - margin.bottom, margin.top] };
};
const axisBelow = (frame, scale, title, ticks) => {
  const axis = d3.axisBottom(scale).tickSizeOuter(0);
  if (ticks) ticks(axis);
  const g = frame.svg.append("g").attr("class", "axis")
    .attr("transform", `translate(0,${frame.y[0]})`).call(axis);
  g.append("text").attr("class", "title").attr("x", frame.x[1]).attr("y", 32)
    .attr("text-anchor", "end").text(title);
};
const axisLeft = (frame, scale, title, ticks) => {
  const axis = d3.axisLeft(scale).tickSizeOuter(0).tickSizeInner(-(frame.x[1] - frame.x[0]));
  if (ticks) ticks(axis);
  const g = frame.svg.append("g").attr("class", "axis rules")
    .attr("transform", `translate(${frame.x[0]},0)`).call(axis);
  g.append("text").attr("class", "title").attr("x", 4 - frame.x[0]).attr("y", frame.y[1] - 12)
    .attr("text-anchor", "start").text(title);
};
const logTicks = (digits) => (axis) => axis.ticks(6, digits);

const drawRoofline = (panel, net, choose) => {
  const roofs = net.roofs;
  const points = net.cells.map((cell, i) => ({ cell, i }))
    .filter(({ cell }) => cell.flop > 0 && cell.bytes > 0 && cell.latency_us > 0)
    .map((point) => ({ ...point, intensity: point.cell.flop / point.cell.bytes,
      reached: point.cell.flop / (point.cell.latency_us * 1e-6) }))
    .sort((a, b) => b.cell.share - a.cell.share);
  if (!points.length) return;
  const ridge = roofs.peak_flop_per_s / roofs.bandwidth_bytes_per_s;
  const frame = frameOf(panel, `Roofline of ${net.network} on ${roofs.title}: ${points.length} `
    + "cells, the table below has their limits", 360, { left: 62, right: 20, top: 34, bottom: 44 });
  const across = d3.extent([...points.map((p) => p.intensity), ridge]);
  const x = d3.scaleLog([across[0] / 1.6, across[1] * 2.5], frame.x);
  const up = d3.extent([...points.map((p) => p.reached), roofs.peak_flop_per_s]);
  const y = d3.scaleLog([up[0] / 1.6, up[1] * 2.6], frame.y);
  axisBelow(frame, x, "FLOP for each byte that is moved", logTicks("~g"));
  axisLeft(frame, y, "FLOP/s", logTicks("~s"));
  const roof = (v) => Math.min(roofs.peak_flop_per_s, v * roofs.bandwidth_bytes_per_s);
  const [low, high] = x.domain();
  const start = Math.max(low, y.domain()[0] / roofs.bandwidth_bytes_per_s);
  const line = [start, Math.max(Math.min(ridge, high), start), high].map((v) => [x(v), y(roof(v))]);
  frame.svg.append("path").attr("class", "roof").attr("d", d3.line()(line));
  const name = (text, at, anchor, lift) => frame.svg.append("text").attr("class", "roof-name")
    .attr("x", at[0]).attr("y", at[1] - lift).attr("text-anchor", anchor).text(text);
  name(`${quantity(roofs.peak_flop_per_s, "FLOP/s")}`, line[2], "end", 20);
  if (start < ridge) {
    const slope = Math.atan2(line[1][1] - line[0][1], line[1][0] - line[0][0]) * 180 / Math.PI;
    const at = [(line[0][0] + line[1][0]) / 2, (line[0][1] + line[1][1]) / 2];
    name(`${quantity(roofs.bandwidth_bytes_per_s, "B/s")}`, [0, 0], "middle", 7)
      .attr("transform", `translate(${at[0]},${at[1]}) rotate(${slope})`);
  }
  const size = d3.scaleSqrt([0, points[0].cell.share], [2.5, 15]);
  const dots = frame.svg.append("g").selectAll("circle").data(points).join("circle")
    .attr("class", "dot").attr("data-limit", (p) => p.cell.limit || "none")
    .attr("data-cell", (p) => p.i)
    .attr("cx", (p) => x(p.intensity)).attr("cy", (p) => y(p.reached))
    .attr("r", (p) => size(p.cell.share)).on("click", (event, p) => choose(p.i));
  nameSome(frame, points, (p) => [x(p.intensity), y(p.reached), size(p.cell.share)]);
  dots.append("title").text((p) => `${p.cell.where || p.cell.label}: ${p.cell.what}\n`
    + `${quantity(p.reached, "FLOP/s")} at ${p.intensity.toPrecision(3)} FLOP/byte, `
    + `${p.cell.share_text} of the time`);
};

// Names beside the largest dots, as far as they do not cover each other.
const nameSome = (frame, points, place) => {
  const taken = [];
  for (const p of points.slice(0, 12)) {
    const [cx, cy, r] = place(p);
    const text = cut(p.cell.where || p.cell.label, 26);
    const wide = textWidth(text, 11);
    const left = cx + r + 4 + wide > frame.x[1];
    const box = { x: left ? cx - r - 4 - wide : cx + r + 4, y: cy - 6, wide, tall: 13 };
    const clear = [...taken, ...points.map((q) => {
      const [qx, qy, qr] = place(q);
      return { x: qx - qr, y: qy - qr, wide: 2 * qr, tall: 2 * qr };
    })].every((other) => box.x + box.wide < other.x || other.x + other.wide < box.x
      || box.y + box.tall < other.y || other.y + other.tall < box.y);
    if (!clear) continue;
    taken.push(box);
    frame.svg.append("text").attr("class", "dot-name").attr("x", box.x).attr("y", cy + 4).text(text);
  }
};

const drawCurve = (panel, networks, over, values) => {
  const wide = panel.clientWidth || 700;
  panel.replaceChildren();
  const points = networks.map((p, i) => ({ ...p, at: values[i] })).filter((p) => p.latency_us);
  const name = networks[0].network;
  const holders = [0, 1].map(() => html("div", { class: wide > 640 ? "half" : "" }));
  panel.append(...holders);
  const part = (holder, title, label, value, ends, format) => {
    const frame = frameOf(holder, label, 260, { left: 58, right: 18, top: 34, bottom: 44 });
    const at = points.map((p) => p.at);
    const x = d3.scaleLog(d3.extent(at).map((v, i) => (i ? v * 1.15 : v / 1.15)), frame.x);
    const top = d3.max(points, (p) => Math.max(...[value(p), ...ends(p)].filter(Number.isFinite)));
    const y = d3.scaleLinear([0, top * 1.05], frame.y).nice(5).clamp(true);
    axisBelow(frame, x, over, (axis) => axis.tickValues(at).tickFormat(d3.format("~g")));
    axisLeft(frame, y, title, (axis) => axis.ticks(5).tickFormat(format));
    const band = points.filter((p) => ends(p).length);
    frame.svg.append("path").attr("class", "band").attr("d", d3.area().x((p) => x(p.at))
      .y0((p) => y(Math.min(...ends(p)))).y1((p) => y(Math.max(...ends(p))))(band));
    frame.svg.append("path").attr("class", "curve")
      .attr("d", d3.line().x((p) => x(p.at)).y((p) => y(value(p)))(points));
    frame.svg.append("g").selectAll("circle").data(points).join("circle").attr("class", "point")
      .attr("cx", (p) => x(p.at)).attr("cy", (p) => y(value(p))).attr("r", 4)
      .append("title").text((p) => `${over} ${p.at}: ${p.latency}, ${p.throughput}`);
  };
  const endsOf = (p) => (p.interval_us || []).map((us) => us ?? Infinity);
  const scale = d3.max(points, (p) => p.latency_us) >= 1000 ? [1e3, "ms"] : [1, "µs"];
  part(holders[0], `latency, ${scale[1]}`, `Latency over ${over} of ${name}`, (p) => p.latency_us,
    endsOf, (us) => d3.format("~g")(us / scale[0]));
  const rate = (p, us) => p.batch / (us * 1e-6);
  part(holders[1], "inputs a second", `Throughput over ${over} of ${name}`,
    (p) => rate(p, p.latency_us), (p) => endsOf(p).map((us) => rate(p, us)),
    d3.format("~s"));
};

const drawComparison = (panel, networks) => {
  const known = networks.filter((net) => net.latency_us);
  if (!known.length) return;
  const row = 34;
  const frame = frameOf(panel, `Latency of ${known.length} networks with their intervals`,
    known.length * row + 62, { left: 16, right: 24, top: 8, bottom: 44 });
  const top = d3.max(known, (net) => Math.max(net.latency_us, ...(net.interval_us || [])));
  const scale = top >= 1000 ? [1e3, "ms"] : [1, "µs"];
  const x = d3.scaleLinear([0, top * 1.04], frame.x);
  axisBelow(frame, x, `latency, ${scale[1]}`, (axis) => axis.ticks(6)
    .tickFormat((us) => d3.format("~g")(us / scale[0])));
  const groups = frame.svg.append("g").selectAll("g").data(known).join("g")
    .attr("transform", (_, i) => `translate(0,${frame.y[1] + i * row})`);
  groups.append("rect").attr("class", "bar").attr("x", frame.x[0]).attr("y", 15).attr("rx", 2)
    .attr("height", 11).attr("width", (net) => x(net.latency_us) - frame.x[0]);
  groups.filter((net) => net.interval_us).append("path").attr("class", "whisker")
    .attr("d", (net) => {
      const [low, high] = net.interval_us.map((us) => (us === null ? frame.x[1] : x(us)));
      const end = net.interval_us[1] === null ? "l-6,-4m6,4l-6,4" : `M${high},16v9`;
      return `M${low},16v9M${low},20.5H${high}${end}`;
    });
  groups.append("text").attr("x", frame.x[0]).attr("y", 10)
    .text((net) => `${net.letter}  ${net.heading}  ·  ${net.latency}`);
};
