// The HTTP interface: its routes with the scope that each needs and a command, from `openapi.json`.
let searched = "";
const opened = {};
// Describes a schema in one line, a named one by a link.
function shape(schema = {}) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return inside(`docs/${name}`, name);
  }
  const one = schema.oneOf?.filter(({ type }) => type !== "null");
  if (one?.length) return one.map((schema, at) => [at > 0 && " or ", shape(schema)]);
  if (schema.type === "array") return ["list of ", shape(schema.items)];
  const { format, enum: values, pattern, minimum, maximum } = schema,
    bounds = [
      format,
      values?.join(" | "),
      pattern,
      minimum != null && `from ${minimum}`,
      maximum != null && `to ${maximum}`
    ];
  return `${[schema.type ?? "anything"].flat().join(" or ")} ${bounds.filter(Boolean).join(", ")}`;
}
const bodies = (content = {}) =>
  Object.entries(content).map(([type, { schema }]) => h("div", null, code(type), ": ", shape(schema)));
const members = (list, label) =>
  list.length > 0 &&
  table(label, list, "name in", "", {
    type: ({ schema }) => shape(schema),
    meaning: ({ required, description, schema }) => [required && "Required. ", prose(description ?? schema.description)]
  });

function operation(method, path, { summary, description, parameters = [], requestBody, responses, security }) {
  const key = `${method} ${path}`,
    scope = security.find(({ token }) => token)?.token[0],
    query = parameters.filter((one) => one.in === "query" && one.required).map(({ name }) => `${name}=…`),
    [type] = Object.keys(requestBody?.content ?? {});
  const command =
    curl(method, `${path.slice(1)}${query.length ? `?${query.join("&")}` : ""}`) +
    (type ? ` -H 'Content-Type: ${type}' --data-binary @FILE` : "");
  return h(
    "details",
    {
      key,
      open: opened[key],
      ontoggle: ({ target }) => {
        opened[key] = target.open;
        render();
      }
    },
    h("summary", null, h("strong", null, key), " ", prose(summary), h("small", null, ` ${scope ?? "no token"}`)),
    opened[key] && [
      h("p", null, prose(description)),
      h("pre", null, command),
      members(parameters, "Parameters"),
      requestBody && h("p", null, "Body: ", prose(requestBody.description), bodies(requestBody.content)),
      table(
        "Responses",
        Object.entries(responses).map(([name, one]) => ({ name, ...one })),
        "name",
        "",
        {
          meaning: ({ description, content }) => [prose(description), bodies(content)]
        }
      )
    ]
  );
}

function docsView() {
  const api = get("openapi.json", 3600);
  if (!api) return waiting("openapi.json");
  const all = Object.entries(api.paths)
    .flatMap(([path, operations]) =>
      Object.entries(operations).map(([method, one]) => [method.toUpperCase(), path, one])
    )
    .filter((one) => `${one[0]} ${one[1]} ${one[2].summary}`.toLowerCase().includes(searched))
    .sort(([, , one], [, , other]) => (other.operationId === "sendMessage") - (one.operationId === "sendMessage"));
  return [
    section(
      "HTTP interface",
      h("p", null, prose(api.info.description), " For programs: ", h("a", { href: "openapi.json" }, "openapi.json")),
      h("input", {
        type: "search",
        "aria-label": "Search routes",
        placeholder: "Search routes",
        oninput: ({ target }) => {
          searched = target.value.toLowerCase();
          render();
        }
      })
    ),
    api.tags.map(({ name, description }) => {
      const tagged = all.filter(([, , { tags }]) => tags.includes(name));
      return (
        tagged.length > 0 &&
        section(
          sentence(name),
          muted(description),
          tagged.map((one) => operation(...one))
        )
      );
    })
  ];
}
function schemaView(name) {
  const schema = get("openapi.json", 3600)?.components.schemas[decodeURIComponent(name)];
  if (!schema) return waiting("openapi.json");
  const { description, properties, required = [] } = schema;
  return section(
    name,
    h("p", null, prose(description)),
    properties
      ? members(
          Object.entries(properties).map(([name, schema]) => ({
            name,
            schema,
            required: required.includes(name)
          })),
          "Members"
        )
      : h("p", null, shape(schema))
  );
}
