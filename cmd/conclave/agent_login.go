package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/attempts"
)

// logins checks the password of an agent's console, and limits how often a remote host may guess it.
type logins struct {
	password secret
	log      *slog.Logger
	key      []byte // of the cookies

	mu     sync.Mutex // held from the begin of an attempt to its end, so that requests with the password do not count
	failed attempts.Limiter
}

func newLogins(password []byte, log *slog.Logger) *logins {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return &logins{password: newSecret(password), log: log, key: key}
}

var errLogin = errors.New("log in with any name and the password of the console")

// user returns the name in a request that has the password. Any name is accepted: it is for the log.
func (l *logins) user(r *http.Request) (user string, ok bool) {
	user, password, _ := r.BasicAuth()
	return user, user != "" && l.password.is(password)
}

// check checks the password of a request, and sets headers of the answer. A wrong one is in the log; after several,
// no password of the host is looked at for a while. A request without a password is no attempt.
func (l *logins) check(w http.ResponseWriter, r *http.Request) (user string, status int, err error) {
	user, _, _ = r.BasicAuth()
	if user == "" {
		return "", l.challenge(w), errLogin
	}
	from := l.source(r)
	l.mu.Lock()
	wait, first := l.failed.Begin(from)
	ok := false
	if wait == 0 {
		if _, ok = l.user(r); ok {
			l.failed.Succeeded(from)
		}
	}
	l.mu.Unlock()
	switch {
	case wait > 0:
		if first {
			l.log.Warn("too many wrong passwords", "actor", user, "remote", r.RemoteAddr, "path", r.URL.Path, "wait", wait.Round(time.Second))
		}
		seconds := int(wait/time.Second) + 1
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		return user, http.StatusTooManyRequests, fmt.Errorf("too many wrong passwords from this address: try again in %d s", seconds)
	case !ok:
		l.log.Warn("wrong password", "actor", user, "remote", r.RemoteAddr, "path", r.URL.Path)
		return user, l.challenge(w), errLogin
	}
	l.mark(w, r)
	return user, http.StatusOK, nil
}

func (l *logins) challenge(w http.ResponseWriter) (status int) {
	w.Header().Set("WWW-Authenticate", `Basic realm="conclave console: any name, and the password", charset="UTF-8"`)
	return http.StatusUnauthorized
}

// source returns what the attempts of a request count for: its host; or its browser, if that has had the password
// before, so that no other client behind the same proxy costs it its access. What pages of other sites have a
// browser request does not count for the browser's user.
func (l *logins) source(r *http.Request) string {
	from := attempts.Host(r.RemoteAddr)
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "cross-site", "same-site":
		from += " " + site
	}
	if browser := l.browser(r); browser != "" {
		from += " " + browser
	}
	return from
}

// loginCookie names the cookie that marks a browser that has had the password. It is no proof of it: each request has the
// password. A browser sends the cookies of a host to each of its ports, and an agent at another one would replace this one's, so the
// name has the port. It is the one that the browser dials: the agents of compose.yaml listen at the same.
func loginCookie(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "conclave-console"
	}
	return "conclave-console-" + port
}

// browser returns the mark of a browser; "": it has none.
func (l *logins) browser(r *http.Request) string {
	c, err := r.Cookie(loginCookie(r))
	if err != nil {
		return ""
	}
	id, sum, _ := strings.Cut(c.Value, ".")
	if subtle.ConstantTimeCompare([]byte(sum), []byte(l.sum(id))) != 1 {
		return ""
	}
	return id
}

func (l *logins) mark(w http.ResponseWriter, r *http.Request) {
	if l.browser(r) == "" {
		id := rand.Text()
		http.SetCookie(w, &http.Cookie{Name: loginCookie(r), Value: id + "." + l.sum(id), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	}
}

func (l *logins) sum(id string) string {
	h := hmac.New(sha256.New, l.key)
	h.Write([]byte(id))
	return hex.EncodeToString(h.Sum(nil))
}
