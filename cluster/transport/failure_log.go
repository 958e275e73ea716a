package transport

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

const (
	failureInterval = time.Minute      // between two lines about the same failure
	failureGrace    = 10 * time.Second // after which a failure that may pass by itself is logged
	maxFailures     = 256              // bounds memory, and lines per minute: addresses come from outside
)

// failureLog logs failed handshakes and refusals at Warn: one line a minute for
// each address and reason. Repetitions are logged at Debug.
type failureLog struct {
	log *slog.Logger

	mu   sync.Mutex // guards seen
	seen map[failure]*occurrences
}

type failure struct {
	message, addr, reason string
}

type occurrences struct {
	first, last time.Time
	logged      time.Time // zero: not yet
}

func newFailureLog(log *slog.Logger) *failureLog {
	return &failureLog{log: log, seen: make(map[failure]*occurrences)}
}

// inbound logs why a connection was not accepted.
func (l *failureLog) inbound(remote net.Addr, err error) {
	host, _, splitErr := net.SplitHostPort(remote.String())
	if splitErr != nil {
		host = remote.String()
	}
	message, member := "inbound handshake failed", uint64(0)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		message, member = "inbound connection refused", refused.Member
	}
	l.write(message, host, member, err, "addr", remote.String())
}

// outbound logs why a connection was not established, unless its dialer abandoned it.
func (l *failureLog) outbound(ctx context.Context, to uint64, addr string, err error) {
	if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	message, member := "connection failed", to
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		message, member = "connection refused", refused.Member
	}
	l.write(message, addr, member, err, "addr", addr)
}

// write logs failures that need an operator at Warn, and others at Debug.
// Failures of one subject count together.
func (l *failureLog) write(message, subject string, member uint64, err error, attrs ...any) {
	reason := reasonOf(err)
	attrs = append(attrs, "reason", reason, "error", err)
	if member != 0 {
		attrs = append(attrs, "member", wire.MemberID(member))
	}
	level := slog.LevelDebug
	if needsOperator(reason) && l.due(failure{message, subject, reason}) {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, message, attrs...)
}

// due records a failure and reports whether it must be logged now.
func (l *failureLog) due(f failure) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	o := l.seen[f]
	if o == nil || now.Sub(o.last) >= failureInterval {
		if o = l.begin(f, now); o == nil {
			return false
		}
	}
	o.last = now
	if passes(f.reason) && now.Sub(o.first) < failureGrace {
		return false
	}
	if !o.logged.IsZero() && now.Sub(o.logged) < failureInterval {
		return false
	}
	o.logged = now
	return true
}

// begin is called with mu held. It returns nil if there is no room.
func (l *failureLog) begin(f failure, now time.Time) *occurrences {
	if len(l.seen) >= maxFailures {
		maps.DeleteFunc(l.seen, func(_ failure, o *occurrences) bool { return now.Sub(o.last) >= failureInterval })
	}
	if len(l.seen) >= maxFailures {
		return nil
	}
	o := &occurrences{first: now}
	l.seen[f] = o
	return o
}

// The reasons of failures that are no refusals.
const (
	reasonConnected   = "connected"
	reasonUnreachable = "unreachable"
	reasonUnresolved  = "name not resolved"
	reasonPlaintext   = "plaintext not allowed"
	reasonProtocol    = "not conclave's protocol"
	reasonTLS         = "TLS handshake failed"
	reasonTimeout     = "handshake timed out"
)

// reasonOf classifies errors, which differ in details such as port numbers.
func reasonOf(err error) string {
	var (
		refused    *RefusedError
		connect    *ConnectError
		unresolved *net.DNSError
		secure     *tlsError
	)
	switch {
	case err == nil:
		return reasonConnected
	case errors.As(err, &refused):
		return string(refused.Reason)
	case errors.Is(err, ErrPlaintext):
		return reasonPlaintext
	case errors.Is(err, ErrTLSMismatch):
		return string(ReasonTLS)
	case errors.As(err, &secure), isAlert(err):
		return reasonTLS
	case errors.Is(err, ErrNotConclave):
		return reasonProtocol
	case errors.Is(err, ErrBadFrame), errors.Is(err, ErrTooLarge):
		return string(ReasonMalformed)
	case errors.As(err, &unresolved):
		return reasonUnresolved
	case errors.As(err, &connect) && connect.Handshake && isTimeout(err):
		return reasonTimeout
	case errors.Is(err, ErrNotJoined):
		return string(ReasonNoCluster)
	}
	return reasonUnreachable
}

// needsOperator reports whether a failure needs an operator. One of a member that is down
// does not: the broken connection is logged with the peer's state (see peer.setState).
// Nor does a member's own address in Config.Join.
func needsOperator(reason string) bool {
	switch reason {
	case reasonConnected, reasonUnreachable, string(ReasonSelf):
		return false
	}
	return true
}

// passes reports whether a failure may pass by itself: members learn one after
// the other that a group has formed, and names appear when a process starts.
func passes(reason string) bool {
	switch reason {
	case string(ReasonNoCluster), string(ReasonNotMember), reasonUnresolved:
		return true
	}
	return false
}
