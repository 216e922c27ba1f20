// The HTTP interface: its routes with the scope that each needs and a command, from `openapi.json`.
let searched = "";
function operation(method, path, { summary, description, parameters = [], requestBody, security }) {
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
        meaning: ({ required, description }) => [required && "Required. ", prose(description)]
      }),
    requestBody && h("p", null, "Body: ", prose(requestBody.description))
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
      h("p", null, prose(api.info.description), " Schemas and responses: ", h("a", { href: "openapi.json" }, "openapi.json")),
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
