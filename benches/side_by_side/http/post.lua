-- Fedora 3 messages for `wrk`. Each has a unique identifier in all runs; the first argument is the number of the run. The
-- constant parts are built once, so that the client needs little processor time.

local counter = 0
local run = 0
local before, middle, after, head

function init(arguments)
  run = tonumber(arguments[1])
  before = '<entry xmlns="http://www.w3.org/2005/Atom"><id>urn:uuid:00000000-0000-4000-8000-'
  middle = '</id><updated>2026-03-01T10:00:05.130Z</updated>'
    .. '<author><name>fedoraAdmin</name><uri>http://localhost:8080/fedora</uri></author>'
    .. '<title type="text">modifyDatastreamByValue</title>'
    .. '<category term="demo:'
  after = '" scheme="fedora-types:pid" label="xsd:string"></category>'
    .. '<category term="MD_DESCRIPTIVE" scheme="fedora-types:dsID" label="xsd:string"></category>'
    .. '<category term="null" scheme="fedora-types:formatURI" label="xsd:string"></category>'
    .. '<category term="[OMITTED]" scheme="fedora-types:dsContent" label="xsd:base64Binary"></category>'
    .. '<summary type="text">demo:1</summary>'
    .. '<content type="text">2026-03-01T10:00:05.125Z</content>'
    .. '<category term="3.8.1" scheme="info:fedora/fedora-system:def/view#version"></category>'
    .. '<category term="info:fedora/fedora-system:ATOM-APIM-1.0" '
    .. 'scheme="http://www.fedora.info/definitions/1/0/types/formatURI"></category></entry>'
  head = 'POST ' .. wrk.path .. ' HTTP/1.1\r\nHost: ' .. wrk.headers["Host"]
    .. '\r\nContent-Type: application/atom+xml\r\nContent-Length: '
end

function request()
  counter = counter + 1
  local id = string.format('%04x%08x', run, counter)
  local body = before .. id .. middle .. (counter % 100000) .. after
  return head .. #body .. '\r\n\r\n' .. body
end
