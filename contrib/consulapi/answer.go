package consulapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
)

// httpError is an answer other than 200.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &httpError{status, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return refuse(http.StatusBadRequest, format, args...)
}

func busy(text string) error {
	return refuse(http.StatusTooManyRequests, "%s: try again later", text)
}

func noLeader() error { return refuse(http.StatusInternalServerError, "No cluster leader") }

// allow sets the header that lists the methods of an endpoint.
func allow(w http.ResponseWriter, methods map[string]action) {
	all := append(slices.Collect(maps.Keys(methods)), http.MethodOptions)
	slices.Sort(all)
	w.Header().Set("Allow", strings.Join(all, ", "))
}

func notAllowed(w http.ResponseWriter, methods map[string]action) error {
	allow(w, methods)
	return refuse(http.StatusMethodNotAllowed, "method not allowed")
}

// statusOf translates an error of the node.
func statusOf(err error) (status int, text string) {
	var answer *httpError
	switch {
	case errors.As(err, &answer):
		return answer.status, answer.text
	case errors.Is(err, conclave.ErrUnknown):
		return http.StatusInternalServerError, "outcome unknown: the change may take effect: " + err.Error()
	case errors.Is(err, conclave.ErrClosed), errors.Is(err, conclave.ErrGroupNotFound):
		return http.StatusInternalServerError, err.Error()
	case errors.Is(err, conclave.ErrUnavailable):
		return http.StatusInternalServerError, "No cluster leader"
	case errors.Is(err, conclave.ErrBusy):
		return http.StatusTooManyRequests, err.Error()
	case errors.Is(err, conclave.ErrTooLarge):
		return http.StatusRequestEntityTooLarge, err.Error()
	case errors.Is(err, conclave.ErrInvalid):
		return http.StatusBadRequest, err.Error()
	}
	return http.StatusInternalServerError, err.Error()
}

// maxText bounds the text of an error, in bytes: decoders quote what the client has sent.
const maxText = 1 << 10

// fail makes the answer to an error. It needs no room: texts are short.
func (c *call) fail(err error) {
	status, text := statusOf(err)
	text = cut(text, maxText)
	if status == http.StatusTooManyRequests {
		c.w.Header().Set("Retry-After", "1")
	}
	if status >= http.StatusInternalServerError && c.opts.Logger != nil {
		c.opts.Logger.Debug("consul request failed", "method", c.r.Method, "path", shorten(c.r.URL.Path), "status", status, "error", err)
	}
	for name := range c.w.Header() {
		if strings.HasPrefix(name, "X-Consul-") { // of an answer that there is no room for
			c.w.Header().Del(name)
		}
	}
	c.leaveRoom()
	c.out = &output{status, "text/plain; charset=utf-8", []byte(text)}
}

// answer writes a value as JSON.
func (c *call) answer(v any) error { return c.answerWith(http.StatusOK, v) }

func (c *call) answerWith(status int, v any) error {
	body, err := c.encode(v, "")
	if err != nil {
		return err
	}
	if c.query.Has("pretty") {
		body = append(body, '\n')
	}
	return c.write(status, "application/json", body)
}

func (c *call) encode(v any, indent string) (body []byte, err error) {
	if c.query.Has("pretty") {
		body, err = json.MarshalIndent(v, indent, "    ")
	} else {
		body, err = json.Marshal(v)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return body, nil
}

// encodeAll makes one JSON array of items, of which none is kept longer than needed. It
// fails as soon as the array is larger than Options.MaxAnswer.
func encodeAll[T any](c *call, items iter.Seq[T]) ([]byte, error) {
	return c.encodeEach('[', ']', func(yield func(string, any) bool) {
		for item := range items {
			if !yield("", item) {
				return
			}
		}
	})
}

// encodeNamed makes one JSON object of items by their names, as encodeAll makes an array.
func encodeNamed[T any](c *call, items map[string]T) ([]byte, error) {
	return c.encodeEach('{', '}', func(yield func(string, any) bool) {
		for _, name := range slices.Sorted(maps.Keys(items)) {
			quoted, _ := json.Marshal(name) // a string always has an encoding
			if c.query.Has("pretty") {
				quoted = append(quoted, ':', ' ')
			} else {
				quoted = append(quoted, ':')
			}
			if !yield(string(quoted), items[name]) {
				return
			}
		}
	})
}

// encodeEach makes one JSON value of items, each after its prefix.
func (c *call) encodeEach(open, end byte, items iter.Seq2[string, any]) ([]byte, error) {
	var b bytes.Buffer
	first, between, last := "", ",", ""
	if c.query.Has("pretty") {
		first, between, last = "\n    ", ",\n    ", "\n"
	}
	_ = b.WriteByte(open)
	n := 0
	for prefix, item := range items {
		body, err := c.encode(item, "    ")
		if err != nil {
			return nil, err
		}
		if n++; n == 1 {
			b.WriteString(first)
		} else {
			b.WriteString(between)
		}
		if b.Len()+len(prefix)+len(body)+len(last)+1 > c.opts.MaxAnswer {
			return nil, refuse(http.StatusRequestEntityTooLarge, "the answer has more than %d bytes: list fewer, with a longer prefix or by node", c.opts.MaxAnswer)
		}
		b.WriteString(prefix)
		b.Write(body)
	}
	if n > 0 {
		b.WriteString(last)
	}
	_ = b.WriteByte(end)
	if c.query.Has("pretty") {
		_ = b.WriteByte('\n')
	}
	if cap(b.Bytes())-b.Len() > b.Len()/4 {
		return bytes.Clone(b.Bytes()), nil // what waits for its client takes what its room counts
	}
	return b.Bytes(), nil
}

// meta sets the headers of a read.
func (c *call) meta(index uint64) {
	group := c.groupInfo(c.node.Status())
	h := c.w.Header()
	h.Set("X-Consul-Index", strconv.FormatUint(max(1, index), 10))
	h.Set("X-Consul-Knownleader", strconv.FormatBool(group.Leader != 0))
	var contact time.Duration
	consistency := "consistent"
	if c.stale {
		consistency = "stale"
		contact = max(0, group.LastContact)
	}
	h.Set("X-Consul-Lastcontact", strconv.FormatInt(contact.Milliseconds(), 10))
	h.Set("X-Consul-Effective-Consistency", consistency)
}
