-- The calls of HAProxy to the decision API of the endpoint picker: see haproxy.cfg.

local picker = os.getenv("PICKER") or "http://endpoint-picker.models.svc:9008"
local backend = "models"
local patience = 500 -- milliseconds for the picker. Then HAProxy takes the pods in turns. With 56000, requests wait while no pod is ready

local report_patience = 5000 -- the same for reports: no client waits for them

-- post makes a call. It returns nil if there is no answer.
local function post(url, body, headers, timeout)
    local ok, answer = pcall(function()
        return core.httpclient():post { url = url, body = body, headers = headers, timeout = timeout }
    end)
    if not ok or not answer.status or answer.status == 0 then
        core.Warning("no answer of the endpoint picker at " .. url)
        return nil
    end
    return answer
end

-- The headers that may have an effect on a pick.
local function headers_of(txn)
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        if name:sub(1, 2) == "x-" or name == "traceparent" then
            headers[name] = {}
            for _, value in pairs(values) do
                table.insert(headers[name], value)
            end
        end
    end
    headers["x-original-path"] = { txn.f:pathq() }
    return headers
end

-- The body of a request, empty if it is longer than the buffer.
local function body_of(txn)
    if txn.f:req_body_len() < txn.f:req_body_size() then
        return ""
    end
    return txn.f:req_body() or ""
end

-- The name of the server with an address.
local function server_at(address)
    for name, server in pairs(core.backends[backend].servers) do
        if server:get_addr() == address then
            return name
        end
    end
end

core.register_action("pick", { "http-req" }, function(txn)
    local answer = post(picker .. "/v1/pick?wait=" .. (patience - 100) .. "ms", body_of(txn), headers_of(txn), patience)
    if not answer then
        return
    end
    local function field(path)
        return txn.c:json_query(answer.body, path)
    end
    local id = field("$.id")
    if not id then
        local reason = field("$.error.reason")
        if reason and reason ~= "" then -- no endpoint can take the request now
            local reply = txn:reply { status = answer.status, headers = { ["content-type"] = { "application/json" }, ["retry-after"] = { "1" } }, body = answer.body }
            txn:done(reply)
        end
        return
    end
    txn:set_var("txn.pick_id", id)
    txn:set_var("txn.outcome_url", field("$.outcome_url"))
    txn:set_var("txn.endpoints", answer.body)
    local server = server_at(field("$.endpoints[0].address"))
    if server then
        txn:set_var("txn.server", server)
    end
    for i = 0, 63 do
        local name = field("$.remove_headers[" .. i .. "]")
        if not name or name == "" then
            break
        end
        txn.http:req_del_header(name)
    end
    for i = 0, 63 do
        local name = field("$.set_headers[" .. i .. "].name")
        if not name or name == "" then
            break
        end
        txn.http:req_set_header(name, field("$.set_headers[" .. i .. "].value"))
    end
end)

-- A filter sees the response pass, and its end.
local Outcome = { id = "outcome of a pick", flags = filter.FLT_CFG_FL_HTX }
Outcome.__index = Outcome

function Outcome:new()
    return setmetatable({ started = core.now() }, self)
end

local function seconds_since(t)
    local now = core.now()
    return now.sec - t.sec + (now.usec - t.usec) / 1000000
end

function Outcome:start_analyze(txn, channel)
    if channel:is_resp() then
        filter.register_data_filter(self, channel)
    end
end

function Outcome:http_headers(txn, message)
    if not message:is_resp() then
        self.started = core.now() -- the request leaves for its server
        return
    end
    self.status = txn.f:status()
    self.server = txn.f:srv_name()
end

function Outcome:http_payload(txn, message)
    if message:is_resp() and not self.first then
        self.first = seconds_since(self.started)
    end
end

function Outcome:http_end(txn, message)
    if message:is_resp() then
        self.complete = true
    end
end

function Outcome:end_analyze(txn, channel)
    local id = txn:get_var("txn.pick_id")
    if not channel:is_resp() or self.sent or not id then
        return
    end
    self.sent = true
    local event, more = "aborted", ""
    if self.complete then
        event = self.status >= 500 and "failed" or "completed"
        more = string.format(',"status":%d', self.status)
        local server = self.server and core.backends[backend].servers[self.server]
        if server and txn:get_var("txn.endpoints"):find('"' .. server:get_addr() .. '"', 1, true) then
            more = more .. string.format(',"endpoint":"%s"', server:get_addr())
        end
    end
    if self.first then
        more = more .. string.format(',"first_token_seconds":%.6f', self.first)
    end
    local url, body = txn:get_var("txn.outcome_url"), string.format('{"id":"%s","event":"%s"%s}', id, event, more)
    core.register_task(function()
        post(url, body, {}, report_patience)
    end)
end

core.register_filter("outcome", Outcome, function(instance)
    return instance
end)
