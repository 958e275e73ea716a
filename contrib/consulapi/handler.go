package consulapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/logqueue"
)

// Options configures [Handler]. The zero value, like a nil *Options, serves loopback clients
// only. With options that are invalid, each request gets the status 500 and the reason.
type Options struct {
	// Group names the further group whose keys, sessions and checks are served; see [conclave.Node.CreateGroup], which the
	// handler does not call. While there is none of that name, what asks the group gets the status 500 and "group not found".
	// A group of that name that is created later is served from then on, with indexes that begin again. Indexes and the leader that the API
	// reports are the group's; the nodes are the members, which all groups share. At most 512 bytes of UTF-8 without NUL.
	// Default: the node's default group.
	Group string
	// Datacenter is the name that the ?dc parameter may have. Default: "dc1".
	Datacenter string
	// Authorize decides on each request before anything is done, once for each resource that
	// the request concerns, and again at the end of a blocking query. The token is that of the header X-Consul-Token, of the header
	// "Authorization: Bearer", or of the parameter ?token, which logs of proxies may contain;
	// "": there is none. An error refuses the request with the status 403; the client gets
	// the error's text. It is called concurrently, on the request's goroutine; a request with a
	// large body that waits for it takes one of the places for such requests.
	//
	// The resource is "key/" and a key; "key_prefix/" and a prefix, for all keys that begin
	// with it, the empty prefix included; "session/", "agent/" or "node/" and the name of a
	// node; or "session_prefix/" or "node_prefix/", for lists of all. The status endpoints
	// concern no resource; for them the resource is "status". Agent checks concern "node/".
	//
	// Default nil: everything is allowed to loopback clients that name a loopback host, and
	// whose request has no header of a proxy, and to clients of a Unix socket. A proxy on the same
	// machine that adds none and names a loopback host is taken for such a client.
	Authorize func(token string, verb Verb, resource string) error
	// MaxBlocking is how many blocking queries may wait at a time. Each keeps a goroutine and a
	// connection. A further one takes the place of the oldest of the host with the most, which
	// is answered early, as after its wait, so that clients that have disconnected unnoticed keep no others
	// out; if that has waited for less than 2 s, the further one gets the status 429. Default: 4096.
	MaxBlocking int
	// MaxAnswer is how many bytes of JSON a listing of keys, sessions or checks may have; a larger one gets the
	// status 413. Two listings are collected at a time, each of which takes memory for
	// all that it lists besides; a transaction that reads more than 1 MiB is one of the two. Answers wait for their clients in twice this many bytes, 64 MiB at
	// least, and those of up to 1 MiB in 64 MiB of their own; further ones wait, and are made again.
	// Meanwhile a client that takes nothing of its answer for 2 s is disconnected. Default: 64 MiB.
	MaxAnswer int
	// SessionTTLMin is the least TTL that a session may have, as Consul's setting session_ttl_min. A shorter one
	// is refused with Consul's status and text, and the endpoint agent/self shows the setting. 1 s to 24 h.
	// Default: 10 s, as with Consul.
	SessionTTLMin time.Duration
	// Timeout bounds how long a request waits for the group, besides the wait of a blocking
	// query: 1 ms or more. Default: 10 s.
	Timeout time.Duration
	// Logger gets a record of each request that failed with a status of 500 or more, at the
	// level Debug, without tokens. No request waits for it. Default nil: none.
	Logger *slog.Logger
}

// Verb is what a request does with a resource.
type Verb int

// The verbs.
const (
	Read Verb = iota + 1
	Write
)

// String returns "read" or "write".
func (v Verb) String() string {
	switch v {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return "unknown"
}

const (
	defaultBlocking = 4096
	defaultAnswer   = 64 << 20
	defaultTimeout  = 10 * time.Second
	minTimeout      = time.Millisecond
	maxBodies       = 128 // requests with a large body that are read or worked on at a time, but for transactions
	maxTxns         = 32  // transactions with a large body, which is read before it is known what they are authorized for; and of those worked on
	maxListings     = 2   // listings of keys that are collected at a time
)

type server struct {
	node     *conclave.Node
	opts     Options
	invalid  error // what is wrong with opts
	routes   []route
	checks   checkTable
	bodies   *sending      // places of requests with a large body, but for transactions
	txns     *sending      // places of transactions with a large body
	running  chan struct{} // holds a value for each transaction that is worked on
	listings chan struct{} // holds a value for each listing of keys that is collected
	waits    *waits        // of blocking queries

	small, large *sending // of answers up to smallAnswer, and larger ones
}

// Handler returns a handler that serves Consul's HTTP API from the node, as the package
// comment describes. It must get the path as the client sent it: mount it at the root of a
// server of its own, and not in a [http.ServeMux], which redirects keys with "//" or "..".
//
// A request blocks until it is answered: until a quorum has confirmed it, Options.Timeout
// has passed, or the client has disconnected; a blocking query, until there is a change, at
// most 10 minutes and a sixteenth. Close of the node ends them all. The handler has no
// goroutine of its own. Each write is one command, which takes effect once at most.
//
// Statuses: 400 for what is invalid or not served; 403; 404; 405 with Allow; 409 for a
// failed transaction; 413 for a limit that a retry cannot help; 429 if too much is under
// way, worth a retry later; and 500 with "No cluster leader" if no quorum was reachable, with "outcome unknown"
// if a write was under way when the wait ended and may take effect, with "invalid session"
// for an acquisition by a session that does not exist, with the reason if a session's check
// is critical, for another datacenter, if there is no group of the name Options.Group, while a member runs a build that does not know sessions
// without a process, and if the node has stopped. A nil node is one that Open has not
// returned yet: it has no leader.
func Handler(node *conclave.Node, opts *Options) http.Handler {
	s := &server{
		node:   node,
		bodies: newSending(maxBodies), txns: newSending(maxTxns), running: make(chan struct{}, maxTxns), listings: make(chan struct{}, maxListings),
		checks: checkTable{byID: make(map[string]*agentCheck)},
	}
	if opts != nil {
		s.opts = *opts
		s.opts.Logger, _ = logqueue.New(opts.Logger)
	}
	s.invalid = s.opts.invalid()
	s.opts.Datacenter = cmp.Or(s.opts.Datacenter, "dc1")
	s.opts.MaxBlocking = cmp.Or(max(0, s.opts.MaxBlocking), defaultBlocking)
	s.opts.MaxAnswer = cmp.Or(max(0, s.opts.MaxAnswer), defaultAnswer)
	s.opts.Timeout = cmp.Or(max(0, s.opts.Timeout), defaultTimeout)
	s.waits = &waits{limit: s.opts.MaxBlocking, after: minWaited}
	s.small, s.large = newSending(smallRoom), newSending(max(2*s.opts.MaxAnswer, smallRoom))
	s.opts.SessionTTLMin = cmp.Or(max(0, s.opts.SessionTTLMin), defaultMinTTL)
	s.routes = routes()
	return s
}

// invalid returns what is wrong with the options.
func (o *Options) invalid() error {
	switch {
	case o.Timeout != 0 && o.Timeout < minTimeout:
		return refuse(http.StatusInternalServerError, "invalid Options.Timeout: want 0 (%v) or at least %v, got %v", defaultTimeout, minTimeout, o.Timeout)
	case o.SessionTTLMin != 0 && (o.SessionTTLMin < leastMinTTL || o.SessionTTLMin > maxTTL):
		return refuse(http.StatusInternalServerError, "invalid Options.SessionTTLMin: want 0 (%v) or %v to %v, got %v", defaultMinTTL, leastMinTTL, maxTTL, o.SessionTTLMin)
	case validKey(o.Group) != nil:
		return refuse(http.StatusInternalServerError, "invalid Options.Group: want at most %d bytes of UTF-8 without NUL, got %q", maxKey, shorten(o.Group))
	case o.MaxBlocking < 0:
		return refuse(http.StatusInternalServerError, "invalid Options.MaxBlocking: want 0 (%d) or more, got %d", defaultBlocking, o.MaxBlocking)
	case o.MaxAnswer < 0:
		return refuse(http.StatusInternalServerError, "invalid Options.MaxAnswer: want 0 (%d) or more, got %d", defaultAnswer, o.MaxAnswer)
	}
	return nil
}

// route is one path of the API, or all that begin with it.
type route struct {
	path    string
	prefix  bool
	methods map[string]action
}

// action serves one method of a route. The rest is what follows the route's path.
type action struct {
	params string // the query parameters that it knows, besides those of every action
	serve  func(c *call, rest string) error
	body   bool // it reads the request's body
}

// reads are the parameters of every endpoint that reads.
const reads = "stale max_stale consistent leader cached index "

func routes() []route {
	get := func(params string, serve func(*call, string) error) map[string]action {
		return map[string]action{http.MethodGet: {reads + params, serve, false}}
	}
	put := func(params string, serve func(*call, string) error) map[string]action {
		return map[string]action{http.MethodPut: {params, serve, false}}
	}
	putBody := func(params string, serve func(*call, string) error) map[string]action {
		return map[string]action{http.MethodPut: {params, serve, true}}
	}
	return []route{
		{"/v1/kv/", true, map[string]action{
			http.MethodGet:    {reads + "recurse keys separator seperator raw", (*call).kvGet, false},
			http.MethodPut:    {"flags cas acquire release", (*call).kvPut, true},
			http.MethodDelete: {"recurse cas", (*call).kvDelete, false},
		}},
		{"/v1/txn", false, putBody(reads, (*call).txn)},
		{"/v1/session/create", false, putBody("", (*call).sessionCreate)},
		{"/v1/session/destroy/", true, put("", (*call).sessionDestroy)},
		{"/v1/session/renew/", true, put("", (*call).sessionRenew)},
		{"/v1/session/info/", true, get("", (*call).sessionInfo)},
		{"/v1/session/node/", true, get("", (*call).sessionNode)},
		{"/v1/session/list", false, get("", (*call).sessionList)},
		{"/v1/status/leader", false, get("", (*call).statusLeader)},
		{"/v1/status/peers", false, get("", (*call).statusPeers)},
		{"/v1/agent/self", false, get("", (*call).agentSelf)},
		{"/v1/agent/checks", false, get("", (*call).agentChecks)},
		{"/v1/agent/check/register", false, putBody("", (*call).checkRegister)},
		{"/v1/agent/check/deregister/", true, put("", (*call).checkDeregister)},
		{"/v1/agent/check/pass/", true, put("note", (*call).checkPass)},
		{"/v1/agent/check/warn/", true, put("note", (*call).checkWarn)},
		{"/v1/agent/check/fail/", true, put("note", (*call).checkFail)},
		{"/v1/agent/check/update/", true, putBody("", (*call).checkUpdate)},
		{"/v1/agent/members", false, get("segment ", (*call).agentMembers)},
		{"/v1/agent/services", false, get("", (*call).agentServices)},
		{"/v1/catalog/datacenters", false, get("", (*call).catalogDatacenters)},
		{"/v1/catalog/nodes", false, get("", (*call).catalogNodes)},
		{"/v1/catalog/node/", true, get("", (*call).catalogNode)},
		{"/v1/catalog/services", false, get("", (*call).catalogServices)},
		{"/v1/event/list", false, get("name ", (*call).eventList)},
		{"/v1/health/node/", true, get("", (*call).healthNode)},
		{"/v1/health/state/", true, get("", (*call).healthState)},
		{"/v1/health/checks/", true, get("", (*call).healthChecks)},
	}
}

// find returns the route of a path, and what follows it. Consul redirects "/v1/kv" to "/v1/kv/"; here both are one path.
func (s *server) find(path string) (*route, string) {
	for i := range s.routes {
		r := &s.routes[i]
		if rest, ok := strings.CutPrefix(path, r.path); ok && (r.prefix || rest == "") {
			return r, rest
		}
		if r.prefix && path+"/" == r.path {
			return r, ""
		}
	}
	return nil, ""
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	c := &call{server: s, w: w, r: r}
	defer c.leaveRoom()
	err := s.serve(c)
	var full *noRoom
	if errors.As(err, &full) { // of an answer that is not large: it is kept meanwhile
		if err = c.awaitRoom(full.size); err == nil {
			c.out = full.out
		}
	}
	if err != nil {
		c.fail(err)
	}
	c.send()
}

func (s *server) serve(c *call) error {
	if err := s.refusal(c.r); err != nil {
		return err
	}
	if s.invalid != nil {
		return s.invalid
	}
	route, rest := s.find(c.r.URL.Path)
	if route == nil {
		return refuse(http.StatusNotFound, "%q is not served: package consulapi lists the paths", shorten(c.r.URL.Path))
	}
	a, ok := route.methods[c.r.Method]
	switch {
	case c.r.Method == http.MethodOptions: // as in Consul, of every endpoint, and without parameters
		allow(c.w, route.methods)
		return c.write(http.StatusOK, "", nil)
	case !ok:
		return notAllowed(c.w, route.methods)
	}
	if err := c.parse(a.params); err != nil {
		return err
	}
	if s.node == nil {
		return c.beforeOpen()
	}
	c.group = s.group()
	s.mayBeStale(c)
	if !a.body {
		if err := c.skipBody(); err != nil {
			return err
		}
	}
	err := a.serve(c, rest)
	if errors.Is(err, conclave.ErrGroupNotFound) {
		err = fmt.Errorf("%w: this API serves the group %q, which was deleted or is not created yet", err, shorten(s.opts.Group))
	}
	return err
}

// group returns the group that is served, as of now: a handle to one that was deleted stays one to that.
func (s *server) group() *conclave.Group {
	if s.opts.Group == "" {
		return s.node.Group
	}
	return s.node.WithGroup(s.opts.Group)
}

// groupInfo returns what the node knows by itself of the group that is served: nothing of one that does not exist.
func (s *server) groupInfo(members conclave.Status) conclave.GroupInfo {
	info, _ := s.node.GroupInfo(cmp.Or(s.opts.Group, members.Group))
	return info
}

// mayBeStale reports whether the answer may be made from the node's own state as of now: that is asked for, and the last contact of this node with a
// leader of the group that is served is no longer ago than ?max_stale.
func (s *server) mayBeStale(c *call) bool {
	if c.stale && c.limit > 0 {
		contact := s.groupInfo(s.node.Status()).LastContact
		c.stale = contact >= 0 && contact <= c.limit
	}
	return c.stale
}

// beforeOpen answers while there is no node: that there is no leader, as a Consul agent does that has found no server.
func (c *call) beforeOpen() error {
	status := map[string]any{"/v1/status/leader": "", "/v1/status/peers": []string{}, "/v1/catalog/datacenters": []string{c.opts.Datacenter}}
	answer, ok := status[c.r.URL.Path]
	if !ok {
		return noLeader()
	}
	if err := c.local("status"); err != nil {
		return err
	}
	return c.answer(answer)
}

// patience returns a context for work with the group, which ends after Options.Timeout.
func (c *call) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.r.Context(), c.opts.Timeout)
}
