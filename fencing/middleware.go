package fencing

import (
	"errors"
	"net/http"

	"github.com/conclave-go/conclave"
)

// Middleware verifies the fences of requests before an http.Handler. It refuses with
//
//   - 412 a stale fence,
//   - 428 a missing one, if Required is set,
//   - 400 a malformed header,
//   - 503 if the guard fails for any other reason,
//
// and with a [Problem] as the body. Accepted requests reach the handler with the verified tokens in their
// context, see [Policy.Verify].
//
// A later holder may come between the check and the handler's write. Where that matters, the
// handler compares again where it writes: under a lock of its own with the same guard, or with [SQL.Tx].
type Middleware struct {
	Policy
	// Locks returns the names of the locks that protect what the request asks for, which is
	// none for requests that need no fence, such as reads. Default nil: every lock that the request
	// names is verified, see [Policy.VerifyAll].
	Locks func(r *http.Request) []string
	// Failed is called, if it is set, with the reason of each answer 503, which the client does not get.
	Failed func(r *http.Request, err error)
}

// Handler returns a handler that verifies each request and passes it to next.
func (m Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header.Values(Header)
		ctx, err := r.Context(), error(nil)
		if m.Locks == nil {
			ctx, err = m.VerifyAll(ctx, values)
		} else {
			ctx, err = m.Verify(ctx, values, m.Locks(r)...)
		}
		if err != nil {
			m.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (m Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := ProblemOf(err)
	if p.Status == http.StatusServiceUnavailable && m.Failed != nil {
		m.Failed(r, err)
	}
	p.ServeHTTP(w, r)
}

// ProblemOf returns the problem with which [Middleware] answers a request that failed with the
// error, also if a handler got it from [SQL.Tx] or from a guard of its own.
func ProblemOf(err error) *Problem {
	var (
		p     *Problem
		stale *conclave.StaleFenceError
		r     *refusal
		named *conclave.Error
	)
	switch {
	case errors.Is(err, conclave.ErrStaleFence):
		p = &Problem{Type: typeStale, Title: "Stale fence", Status: http.StatusPreconditionFailed,
			Detail: "A later holder of the lock has used the resource. Stop: the lock was lost."}
	case errors.Is(err, ErrMissing):
		p = &Problem{Type: typeMissing, Title: "Missing fencing token", Status: http.StatusPreconditionRequired,
			Detail: "Send the fence of the lock in the header " + Header + ", as name=fence."}
	case errors.Is(err, ErrMalformed):
		return &Problem{Type: typeMalformed, Title: "Malformed fencing token", Status: http.StatusBadRequest, Detail: err.Error()}
	default:
		return &Problem{Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
			Detail: "The request could not be completed."}
	}
	if errors.As(err, &named) {
		p.Lock = named.Name
	}
	if errors.As(err, &stale) {
		p.Presented, p.Largest = stale.Presented, stale.Largest
	}
	if errors.As(err, &r) {
		p.Lock, p.Presented = r.token.Lock, r.token.Fence
	}
	return p
}
