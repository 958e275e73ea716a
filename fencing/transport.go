package fencing

import "net/http"

// Transport is an http.RoundTripper that sends the fences of a request's context in the header
// Fencing-Token. It may be used concurrently; its fields must not be changed then.
//
// A request whose context carries no fence is sent as it is: whether that is enough is the server's decision. One
// whose fence cannot be sent is not sent, and fails with the errors of [Format].
type Transport struct {
	// Lock is the name of the lock to which the context's fence belongs. It is not used for contexts
	// with tokens of their own, see [ContextWithLock]. Default "": only such tokens are sent.
	Lock string
	// Base sends the requests. Default nil: http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	value, err := Outgoing(r.Context(), t.Lock)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it also on errors
		}
		return nil, err
	}
	if value != "" {
		r = r.Clone(r.Context())
		if r.Header == nil { // of a caller other than http.Client
			r.Header = make(http.Header)
		}
		r.Header.Set(Header, value)
	}
	return base.RoundTrip(r)
}

// CloseIdleConnections closes those of Base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
