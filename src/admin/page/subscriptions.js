// Subscriptions, subscribers of the hub, crawlers, delivery attempts and dead letters.
const target = ({ definition: { delivery, url, callback, servers, exchange, destination, topic } = {} }) =>
  [delivery, url ?? callback ?? servers, exchange ?? destination ?? topic].filter(Boolean).join(" ");
const subscriptionTable = (list, empty) =>
  table(
    "Subscriptions",
    list,
    "name state to cursor lag rate deadLetters",
    empty ?? ["No subscription yet. ", inside("connect", "Connect a receiver")],
    {
      name: ({ name }) => inside(`subscriptions/${name}`, name),
      state: (one) => stateCell(stateOf(one)),
      to: target,
      actions: (one) => bar(subscriptionActions(one))
    }
  );

function subscriptionsView() {
  const list = getList("subscriptions");
  if (!list) return waiting("subscriptions");
  const { subscriptions: all, dbus } = list,
    isHub = ({ from }) => from === "hub";
  return [
    section("Subscriptions", subscriptionTable(all.filter((one) => !isHub(one)))),
    section("Subscribers of the hub", subscriptionTable(all.filter(isHub), "No WebSub subscriber.")),
    dbus &&
      section(
        "Crawlers on D-Bus",
        facts(dbus, "crawlers"),
        table("Crawlers", dbus.crawlers, "id owner state position lag records", "No crawler.", {
          actions: ({ id, records }) =>
            button("Invalidate", `crawler ${id}`, `POST crawlers/${id}/invalidate`, {
              body: {},
              ask: `The crawler has ${count(records, "record")} and gets no more until it installs itself again.`
            })
        })
      )
  ];
}

const move = (label, { name, cursor }, to, next) =>
  button(label, name, `POST subscriptions/${name}/rewind`, {
    body: { to },
    ask:
      next > cursor
        ? `${count(next - cursor - 1, "change")}, ${number(cursor + 1)} to ${number(next - 1)}, are never sent to ${name}.`
        : `${count(cursor + 1 - next, "change")}, ${number(next)} to ${number(cursor)}, are sent to ${name} again, as far as it selects them.`
  });
const moves = (one) => {
  const { first: oldest, head } = getStatus().journal;
  return [move("Rewind to the beginning", one, "beginning", oldest), move("Skip to now", one, "now", head + 1)];
};
const subscriptionActions = (one) => {
  const { name, state } = one;
  return [
    /retrying|connecting/.test(state) && button("Try now", name, `POST subscriptions/${name}/resume`, first),
    pause("subscriptions", name, state),
    state === "fell-behind" && moves(one),
    state === "orphaned" && remove(one)
  ];
};

const range = {};
function positionSection(one) {
  const { name } = one,
    { first: oldest, head } = getStatus().journal;
  const field = (key, label) =>
    h(
      "label",
      null,
      label,
      h("input", {
        type: "number",
        value: range[key],
        oninput: (event) => {
          range[key] = +event.target.value || undefined;
          render();
        }
      })
    );
  const { from, to = head } = range,
    isRange = from >= oldest && from <= to && to <= head;
  return section(
    "Position",
    bar(moves(one)),
    bar(
      field("from", "From change"),
      field("to", "to"),
      isRange && [
        move("Continue there", one, from, from),
        button("Send again", name, `POST subscriptions/${name}/replay`, {
          body: { from, to },
          ask: `${count(to - from + 1, "change")}, ${number(from)} to ${number(to)}, are sent to ${name} again, as far as it selects them.`
        })
      ]
    )
  );
}

function subscriptionView(name) {
  const one = get(`subscriptions/${name}`),
    attempts = get(`subscriptions/${name}/attempts`)?.attempts ?? [];
  if (!one) return waiting(`subscriptions/${name}`);
  const { stuckAt, deadLetters: n, from } = one,
    letters = n > 0 && get(`subscriptions/${name}/dead-letters?limit=50`)?.deadLetters,
    path = `subscriptions/${name}/dead-letters`;
  return [
    section(
      `Subscription ${name}`,
      stateCell(stateOf(one)),
      bar(
        subscriptionActions(one),
        button("Send a test", name, `POST subscriptions/${name}/send`, { body: {} }),
        stuckAt &&
          button("Skip this change", `${number(stuckAt)} of ${name}`, `POST subscriptions/${name}/skip`, {
            body: { change: stuckAt },
            ask: `1 change, ${number(stuckAt)}, becomes a dead letter, and the delivery continues after it.`
          }),
        from === "api" && remove(one)
      ),
      facts({ to: target(one), ...one }, "name state definition")
    ),
    letters &&
      section(
        "Dead letters",
        bar(sendAll(name), dropLetters(name, n)),
        table("Dead letters", letters, "seq refused attempts reason replay", "", {
          actions: ({ id, seq }) =>
            bar(
              button("Send again", `dead letter ${id}`, `POST ${path}/${id}/replay`),
              button("Drop", `dead letter ${id}`, `DELETE ${path}/${id}`, {
                ask: `1 message, change ${number(seq)}, will be deleted for good, and not be sent to ${name}.`
              })
            )
        })
      ),
    section(
      "Attempts",
      table(
        "Attempts",
        attempts.slice(0, 12),
        "at seq outcome status millis reason answer",
        "None since the start. Webhooks list theirs."
      )
    ),
    positionSection(one),
    one.definition && fold("definition", "Definition", () => json(one.definition))
  ];
}
