// The HTTP interface: its routes with the scope that each needs and a command, from `openapi.json`.
let searched = "";
// A schema: a named one is a link.
const shape = (schema = {}) => {
  const name = schema.$ref?.split("/").pop();
  return name ? inside(`docs/${name}`, name) : code(JSON.stringify(schema));
};
const bodies = (content = {}) =>
  Object.entries(content).map(([type, { schema }]) => h("div", null, code(type), ": ", shape(schema)));
function operation(method, path, { summary, description, parameters = [], requestBody, responses, security }) {
  const key = `${method} ${path}`,
    scope = security.find(({ token }) => token)?.token[0],
    query = parameters.filter((one) => one.in === "query" && one.required).map(({ name }) => `${name}=…`),
    [type] = Object.keys(requestBody?.content ?? {});
  const command =
    curl(method, `${path.slice(1)}${query.length ? `?${query.join("&")}` : ""}`) +
    (type ? ` -H 'Content-Type: ${type}' --data-binary @FILE` : "");
  return fold(key, [h("strong", null, key), " ", prose(summary), h("small", null, ` ${scope ?? "no token"}`)], () => [
    h("p", null, prose(description)),
    h("pre", null, command),
    parameters.length > 0 &&
      table("Parameters", parameters, "name in", "", {
        type: ({ schema }) => shape(schema),
        meaning: ({ required, description }) => [required && "Required. ", prose(description)]
      }),
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
  ]);
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
const schemaView = (name) =>
  viewOf("openapi.json", (api) => section(name, json(api.components.schemas[decodeURIComponent(name)] ?? null)), 3600);
