package consulapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conclave-go/conclave"
)

// call is one request and its answer.
type call struct {
	*server
	w     http.ResponseWriter
	r     *http.Request
	group *conclave.Group // whose keys, sessions and checks the request concerns
	query url.Values
	token string
	index uint64        // ?index; 0: no blocking query
	wait  time.Duration // ?wait; 0: the default
	stale bool          // ?stale
	limit time.Duration // ?max_stale; 0: none
	read  bool          // the body, if there is one
	// collecting says that a transaction has one of the places of listings.
	collecting bool
	out        *output // the answer
	room       *room   // for it; nil: it needs none yet
}

const (
	maxQuery    = 16 << 10 // bytes of a query string
	bodyTimeout = 30 * time.Second
	smallBody   = 16 << 10 // bytes of a body that takes no place while it is read
)

// parse reads the query, of which it refuses what the endpoint does not know. Clients whose configuration has a
// wait time, such as HashiCorp's api.Config.WaitTime, send ?wait with all requests; only blocking queries have one.
func (c *call) parse(params string) error {
	if n := len(c.r.URL.RawQuery); n > maxQuery {
		return refuse(http.StatusRequestEntityTooLarge, "query of %d bytes, the limit is %d", n, maxQuery)
	}
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return invalid("malformed query: %v", err)
	}
	known := append(strings.Fields(params), "dc", "ns", "partition", "token", "pretty", "wait")
	for _, name := range slices.Sorted(maps.Keys(c.query)) {
		switch {
		case !slices.Contains(known, name):
			return invalid("query parameter %q is not supported by this endpoint", shorten(name))
		case len(c.query[name]) > 1:
			return invalid("query parameter %q is there more than once", name)
		}
	}
	c.token = tokenOf(c.r, c.query)
	if dc := c.query.Get("dc"); dc != "" && dc != c.opts.Datacenter {
		return refuse(http.StatusInternalServerError, "No path to datacenter")
	}
	if err := onlyDefault(c.query, c.r.Header); err != nil {
		return err
	}
	return c.parseRead()
}

// onlyDefault refuses other namespaces and partitions than default, of which there is one each. As in Consul either may
// come in a header.
func onlyDefault(query url.Values, headers http.Header) error {
	for _, names := range [][2]string{{"ns", "X-Consul-Namespace"}, {"partition", "X-Consul-Partition"}} {
		name, header := names[0], names[1]
		if v := query.Get(name); v != "" && v != "default" {
			return invalid("query parameter %q: want \"default\", got %q: there are no others", name, shorten(v))
		}
		if v := headers.Get(header); v != "" && v != "default" {
			return invalid("header %s: want \"default\", got %q: there are no others", header, shorten(v))
		}
	}
	return nil
}

// parseRead reads the parameters of reads. Others do not have them.
func (c *call) parseRead() (err error) {
	var consistent bool
	if c.stale, err = c.flag("stale"); err != nil {
		return err
	}
	// Consul's agents cache some answers on wish, and are free not to; this one caches none. The name of the default
	// consistency is "leader".
	for _, name := range []string{"cached", "leader"} {
		if _, err = c.flag(name); err != nil {
			return err
		}
	}
	if consistent, err = c.flag("consistent"); err != nil {
		return err
	}
	if limit := c.query.Get("max_stale"); limit != "" {
		if c.limit, err = time.ParseDuration(limit); err != nil {
			return invalid("Invalid max_stale value %q", shorten(limit))
		}
		c.stale = c.stale || c.limit > 0 // as in Consul
	}
	if c.stale && consistent {
		return invalid("Cannot specify ?stale with ?consistent, conflicting semantics.")
	}
	if wait := c.query.Get("wait"); wait != "" {
		if c.wait, err = time.ParseDuration(wait); err != nil || c.wait < 0 {
			return invalid("Invalid wait time")
		}
	}
	if index := c.query.Get("index"); index != "" {
		if c.index, err = strconv.ParseUint(index, 10, 64); err != nil {
			return invalid("Invalid index")
		}
	}
	return nil
}

// flag reports whether a parameter without a value is set. As in Consul, "true" and the
// like do not matter; but "false" is refused, which Consul takes for true.
func (c *call) flag(name string) (bool, error) {
	if !c.query.Has(name) {
		return false, nil
	}
	if v := c.query.Get(name); v != "" {
		if on, err := strconv.ParseBool(v); err != nil || !on {
			return false, invalid("query parameter %q: want no value, got %q: leave the parameter out instead", name, shorten(v))
		}
	}
	return true, nil
}

// number returns a parameter that is a number, and whether it is set.
func (c *call) number(name string) (n uint64, set bool, err error) {
	if !c.query.Has(name) {
		return 0, false, nil
	}
	if n, err = strconv.ParseUint(c.query.Get(name), 10, 64); err != nil {
		return 0, false, invalid("query parameter %q: want a number, got %q", name, shorten(c.query.Get(name)))
	}
	return n, true, nil
}

// consistency returns the options of the call's reads.
func (c *call) consistency() []conclave.ReadOption {
	if c.stale {
		return []conclave.ReadOption{conclave.Stale()}
	}
	return nil
}

// body reads the request's body, in bounded time. A small one takes no place while it is
// read: it costs no more than the request's header. A larger one takes one of few, which a client
// that sends nothing loses to others (see sending). Release the place after use.
func (c *call) body(places *sending, limit int64, tooLarge func(size int64) error) (body []byte, release func(), err error) {
	if c.r.ContentLength > limit {
		return nil, nil, tooLarge(c.r.ContentLength)
	}
	if c.r.Body == nil || c.r.ContentLength == 0 {
		return nil, func() {}, nil
	}
	controller := http.NewResponseController(c.w)
	c.read = true
	_ = controller.SetReadDeadline(time.Now().Add(bodyTimeout)) // where the server cannot, its own timeouts count
	defer func() { _ = controller.SetReadDeadline(time.Time{}) }()
	leave, complete := func() {}, false
	defer func() {
		if !complete { // also if the body panics, which may be the application's
			leave()
		}
	}()
	from := http.MaxBytesReader(c.w, c.r.Body, limit)
	body, err = io.ReadAll(io.LimitReader(from, smallBody))
	if err == nil && len(body) == smallBody {
		place, full := c.bodyPlace(places)
		if full != nil {
			return nil, nil, full
		}
		leave = place.leave
		place.sent(func() { _ = controller.SetReadDeadline(time.Unix(1, 0)) })
		b := bytes.NewBuffer(body)
		_, err = b.ReadFrom(&arriving{Reader: from, at: place})
		place.sent(nil)
		body = b.Bytes()
	}
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		err = tooLarge(limit + 1)
	case err != nil:
		err = invalid("the body could not be read: %v", err)
	}
	if err != nil {
		return nil, nil, err
	}
	complete = true
	return body, leave, nil
}

// bodyPlace waits for one of the places for large bodies, for Options.Timeout at most.
func (c *call) bodyPlace(places *sending) (*room, error) {
	ctx, cancel := c.patience()
	defer cancel()
	place, err := places.await(ctx, 1)
	if err != nil {
		return nil, busy("too many requests with a body are under way")
	}
	return place, nil
}

// bodyPart is how many bytes of a body count as progress.
const bodyPart = 4 << 10

// arriving notes the progress of a body.
type arriving struct {
	io.Reader
	at    *room
	bytes int // since the last progress
}

// Read implements io.Reader.
func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	if a.bytes += n; a.bytes >= bodyPart {
		a.bytes = 0
		a.at.progress()
	}
	return n, err
}

// place waits for one of the places, for Options.Timeout at most.
func (c *call) place(places chan struct{}) (release func(), err error) {
	release = func() { <-places }
	ctx, cancel := c.patience()
	defer cancel()
	select {
	case places <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, busy("too many transactions are under way")
	}
}

// skipBody discards the body of a request that needs none. As long as a body is unread, the
// server does not notice that the client has disconnected, and waits for the body before it answers.
func (c *call) skipBody() error {
	_, release, err := c.body(nil, smallBody-1, func(int64) error {
		return refuse(http.StatusRequestEntityTooLarge, "this endpoint has no body, and skips one of less than %d bytes", smallBody)
	})
	if err == nil {
		release()
	}
	return err
}

// validKey refuses a key, or a prefix, that no key can have.
func validKey(key string) error {
	switch {
	case len(key) > maxKey:
		return refuse(http.StatusRequestEntityTooLarge, "key of %d bytes, the limit is %d", len(key), maxKey)
	case !utf8.ValidString(key) || strings.Contains(key, "\x00"):
		return invalid("key %q: want UTF-8 without NUL", key)
	}
	return nil
}

const (
	maxKey   = 512
	maxValue = 512 << 10
)

// shorten keeps a long text out of an answer.
func shorten(s string) string { return cut(s, 128) }

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], "?"), len(s))
}
