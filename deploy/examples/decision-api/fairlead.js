// The calls of nginx to the decision API of the endpoint picker: see nginx.conf.

const picker = process.env.PICKER || 'http://endpoint-picker.models.svc:9008';

// route sends a request to the endpoint that the picker chooses, or to any if the picker does not answer.
async function route(r) {
    let reply, answer;
    try {
        reply = await ngx.fetch(picker + '/v1/pick?n=2&wait=400ms', {method: 'POST', headers: headersOf(r), body: bodyOf(r)});
        answer = await reply.json();
    } catch (e) {
        r.error('no answer of the endpoint picker: ' + e.message);
    }
    if (answer && answer.id) {
        use(r, answer);
        r.internalRedirect('@picked');
    } else if (answer && answer.error && answer.error.reason) { // no endpoint can take the request now
        r.headersOut['Content-Type'] = 'application/json';
        r.headersOut['Retry-After'] = '1';
        r.return(reply.status, JSON.stringify({error: answer.error}));
    } else {
        r.internalRedirect('@any');
    }
}

function use(r, answer) {
    const v = r.variables;
    v.picked = answer.endpoints[0].address;
    v.second = answer.endpoints[answer.endpoints.length - 1].address;
    v.pick_id = answer.id;
    v.outcome_url = answer.outcome_url;
    v.picked_at = Date.now();
    const set = {'x-request-id': r.headersIn['X-Request-Id'], traceparent: r.headersIn['Traceparent']};
    (answer.set_headers || []).forEach(h => { set[h.name] = h.value; });
    v.pick_request_id = set['x-request-id'] || '';
    v.pick_traceparent = set.traceparent || '';
}

// headersOf returns the headers that may have an effect on a pick.
function headersOf(r) {
    const headers = {'X-Original-Path': r.variables.request_uri};
    for (const name in r.headersIn) {
        if (/^(x-|traceparent$)/i.test(name) && !/^x-original-path$/i.test(name)) {
            headers[name] = r.headersIn[name];
        }
    }
    return headers;
}

// bodyOf returns the body of a request, empty if it is longer than client_body_buffer_size.
function bodyOf(r) {
    try {
        return r.requestText || '';
    } catch (e) {
        return '';
    }
}

// first notes when the answer begins.
function first(r, data, flags) {
    if (data.length > 0) {
        r.variables.first_token_at = Date.now();
    }
    r.sendBuffer(data, flags);
    if (data.length > 0) {
        r.done(); // the rest passes without this function
    }
}

// outcome tells the picker what became of a request.
async function outcome(r) {
    const v = r.variables;
    const status = Number((v.upstream_status || '').split(/[,: ]+/).pop()) || 0;
    const report = {id: v.pick_id, event: 'aborted'};
    if (v.request_completion === 'OK' && status > 0) {
        report.event = status >= 500 ? 'failed' : 'completed';
        report.status = status;
        report.endpoint = v.upstream_addr.split(/[, ]+/).pop();
    }
    if (v.first_token_at) {
        report.first_token_seconds = (v.first_token_at - v.picked_at) / 1000;
    }
    try {
        await ngx.fetch(v.outcome_url, {method: 'POST', body: JSON.stringify(report)});
    } catch (e) {
        r.error('no report to the endpoint picker: ' + e.message);
    }
    r.return(204);
}

export default {route, first, outcome};
