package fencing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/conclave-go/conclave"
)

const (
	problemType = "application/problem+json"
	maxProblem  = 1 << 16 // bytes of a body that are read

	typesAt       = "https://pkg.go.dev/github.com/conclave-go/conclave/fencing#"
	typeStale     = typesAt + "stale-fence"
	typeMissing   = typesAt + "missing-fencing-token"
	typeMalformed = typesAt + "malformed-fencing-token"
)

// Problem is the body of a refusal, by RFC 9457. Fences are JSON strings, as in the header.
type Problem struct {
	Type      string         `json:"type"` // identifies the kind of problem; about:blank is any other
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail,omitempty"`
	Lock      string         `json:"lock,omitempty"`
	Presented conclave.Fence `json:"presented,omitzero"` // what the request had
	Largest   conclave.Fence `json:"largest,omitzero"`   // what the guard has accepted
}

// ServeHTTP answers a request with the problem.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}") // not reached: all fields can be marshalled
	}
	w.Header().Set("Content-Type", problemType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that has disconnected needs no answer
}

// ErrorOf returns the reason why a [Middleware] refused the request, or nil for any other
// response. The error wraps conclave.ErrStaleFence with a *conclave.StaleFenceError, ErrMissing,
// or ErrMalformed. It may read the body; the caller can read it again from the beginning, and has to
// close it.
func ErrorOf(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest:
	default:
		return nil
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != problemType {
		return nil
	}
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), resp.Body), resp.Body}
	var p Problem
	if err != nil || json.Unmarshal(read, &p) != nil {
		return nil
	}
	return p.reason()
}

func (p *Problem) reason() error {
	switch p.Type {
	case typeStale:
		return &conclave.Error{Op: "check", Name: p.Lock, Err: &conclave.StaleFenceError{Presented: p.Presented, Largest: p.Largest}}
	case typeMissing:
		return &conclave.Error{Op: "check", Name: p.Lock, Err: ErrMissing}
	case typeMalformed:
		return fmt.Errorf("%w: the server reports: %.256q", ErrMalformed, p.Detail)
	}
	return nil
}
