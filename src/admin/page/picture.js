// The picture: sources, the journal and subscriptions, in which each box says what flows.
const SHOWN_BOXES = 8,
  BOX = 58,
  GAP = 10,
  BARS = 132;

// Bars of a series. A slot in which the gateway did not run is a gap; one without changes is a line at the bottom.
function bars(series, x, y, width, height) {
  const most = Math.max(1, ...series),
    step = width / series.length;
  return h("path", {
    class: "bars",
    d: series
      .map((value, slot) => {
        if (value == null) return "";
        const tall = (value ? Math.max(2, (value / most) * height) : 1).toFixed(1);
        return `M${(x + slot * step).toFixed(1)} ${y + height}v-${tall}h${(step * 0.8).toFixed(1)}v${tall}z`;
      })
      .join("")
  });
}
const sum = (series) => series.reduce((all, value) => all + value, 0);
const cut = (text, width) => {
  const letters = Math.max(3, Math.floor(width / 7.4));
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
};

// Many boxes become one for each state; the bad ones are shown before.
function grouped(boxes, route) {
  if (boxes.length <= SHOWN_BOXES) return boxes;
  const bad = boxes.filter(({ level }) => level === "bad").slice(0, SHOWN_BOXES - 3),
    groups = Object.values(
      Object.groupBy(
        boxes.filter((box) => !bad.includes(box)),
        ({ word }) => word
      )
    );
  const total = (group, slot) =>
    group.reduce((all, { series }) => (series?.[slot] == null ? all : all + series[slot]), null);
  return [
    ...bad,
    ...groups.map((group) => ({
      ...group[0],
      route,
      note: "",
      name: `${group.length}${bad.length && group[0].level === "bad" ? " more" : ""}`,
      series: group[0].series?.map((_, slot) => total(group, slot))
    }))
  ];
}

function box({ name, route, level, word, series, note = "" }, x, y, width) {
  const flowed = series && `${number(sum(series))} in the last ${page.span}`,
    label = [name, word, note, flowed].filter(Boolean).join(", ");
  return h(
    "a",
    { key: `${route} ${word}`, class: level, href: `#/${route}`, "aria-label": label },
    h("title", null, label),
    h("rect", { x, y, width, height: BOX, rx: 8 }),
    h("text", { class: "name", x: x + 12, y: y + 23 }, cut(name, width - 40 - note.length * 6.5)),
    h("text", { class: "note end", x: x + width - 12, y: y + 23 }, note),
    h("text", { x: x + 12, y: y + 44 }, cut(`${MARKS[level]} ${word}`, width - BARS - 30)),
    series && bars(series, x + width - 12 - BARS, y + 31, BARS, 18)
  );
}

function picture(status, sources, harvests, subscriptions, flow) {
  const left = grouped(
    sources.map((source) => ({
      ...stateOf(source, harvests),
      name: source.name,
      route: `sources/${source.name}`,
      series: flow?.sources.find(({ name }) => name === source.name)?.changes,
      note:
        source.rate >= 0.1
          ? show("rate", source.rate)
          : source.lastEvent
            ? `${span(age(source.lastEvent))} ago`
            : "no event"
    })),
    "sources"
  );
  const right = grouped(
    subscriptions.map((one) => ({
      ...stateOf(one),
      name: one.name,
      route: `subscriptions/${one.name}`,
      series: flow?.subscriptions.find(({ name }) => name === one.name)?.delivered,
      note: one.lag.changes ? `${show("lag", one.lag)} behind` : "up to date"
    })),
    "subscriptions"
  );
  const { head, bytes: size } = status.journal,
    journal = {
      name: count(head, "change"),
      route: "changes",
      level: "good",
      word: "journal",
      series: flow?.changes,
      note: size == null ? "" : bytes(size)
    };
  const width = Math.max(240, Math.min(1200, document.documentElement.clientWidth - 32)),
    tall = (boxes) => boxes.length * (BOX + GAP) - GAP,
    parts = [];
  const line = (level, d) => parts.push(h("path", { class: `flow ${level}`, d }));
  let height = Math.max(tall(left), tall(right), BOX) + 2;
  if (!isNarrow()) {
    const side = width * 0.34,
      from = width * 0.39,
      gap = from - side,
      center = height / 2;
    const column = (boxes, x, begin, end) =>
      boxes.forEach((one, row) => {
        const y = (height - tall(boxes)) / 2 + row * (BOX + GAP),
          [a, b] = x > 1 ? [center, y + BOX / 2] : [y + BOX / 2, center];
        line(one.level, `M${begin} ${a}C${begin + gap} ${a} ${end - gap} ${b} ${end} ${b}`);
        parts.push(box(one, x, y, side - 1));
      });
    column(left, 1, side, from);
    column(right, width - side, width - from, width - side);
    parts.push(box(journal, from, center - BOX / 2, width - 2 * from));
  } else {
    height = 1;
    [...left, journal, ...right].forEach((one) => {
      parts.push(box(one, 1, height, width - 2));
      height += BOX + GAP;
    });
  }
  const spans = ["hour", "day", "week"].map((name) =>
    h(
      "button",
      {
        "aria-pressed": `${page.span === name}`,
        onclick: () => {
          page.span = name;
          refresh();
        }
      },
      `Last ${name}`
    )
  );
  return section("Flow", flow && bar(spans), h("svg", { width, height, role: "group", "aria-label": "Flow" }, parts));
}
