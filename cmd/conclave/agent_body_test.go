package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// countedBody counts what is read of it.
type countedBody struct {
	io.Reader
	read int
}

func (b *countedBody) Read(p []byte) (n int, err error) {
	n, err = b.Reader.Read(p)
	b.read += n
	return n, err
}

// A client without the password sends no file that the agent keeps, in memory or in the directory for temporary files, before it is refused.
func TestAgent_ReadsNoBody(t *testing.T) {
	const boundary = "--x\r\nContent-Disposition: form-data; name=\"run\"; filename=\"run\"\r\n\r\n"
	for _, password := range []string{"", "secret"} {
		s := new(agentServer)
		if password != "" {
			s.logins = newLogins([]byte(password), nil)
		}
		for path, handle := range map[string]http.HandlerFunc{eventsPath: s.events, statusPath: s.status} {
			body := &countedBody{Reader: strings.NewReader(boundary + strings.Repeat("x", 1<<20) + "\r\n--x--\r\n")}
			r := httptest.NewRequest(http.MethodGet, path, body)
			r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
			w := httptest.NewRecorder()
			handle(w, r)
			if w.Code != http.StatusForbidden && w.Code != http.StatusUnauthorized || body.read > 0 {
				t.Errorf("GET %s: %d, and %d bytes of the body were read", path, w.Code, body.read)
			}
		}
	}
}
