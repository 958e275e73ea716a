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
	repeatInterval  = 5 * time.Second  // between two lines about the same failure at Debug
	failureGrace    = 10 * time.Second // after which a failure that may pass by itself is logged
	maxFailures     = 256              // bounds memory, and lines per minute: addresses come from outside
)

// failureLog logs failed handshakes and refusals at Warn: one line a minute for
// each address and reason. Repetitions, and failures that need no operator, are logged at
// Debug, every 5 s at most.
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
	repeated    time.Time // when it was last logged, at any level; zero: not yet
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
	message, attrs, member, name := "inbound handshake failed", []any{"addr", remote.String()}, uint64(0), ""
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		message, member, name = "inbound connection refused", refused.Member, refused.Name
		if refused.Client {
			attrs, member = append(attrs, "client", wire.MemberID(member)), 0
		}
	}
	l.write(message, host, member, name, err, attrs...)
}

// outbound logs why a connection was not established, unless its dialer abandoned it.
func (l *failureLog) outbound(ctx context.Context, to Target, err error) {
	if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	message, member, name := "connection failed", to.Member, ""
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		message, member, name = "connection refused", refused.Member, refused.Name
	}
	l.write(message, to.Addr, member, name, err, "addr", to.Addr)
}

// write logs failures that need an operator at Warn, and others at Debug.
// Failures of one subject count together.
func (l *failureLog) write(message, subject string, member uint64, name string, err error, attrs ...any) {
	reason := reasonOf(err)
	attrs = append(attrs, "reason", reason, "error", err)
	if member != 0 {
		attrs = append(attrs, "member", wire.MemberID(member))
	}
	if name != "" { // else the logger adds that of a known member
		attrs = append(attrs, "name", name)
	}
	if level, due := l.due(failure{message, subject, reason}); due {
		l.log.Log(context.Background(), level, message, attrs...)
	}
}

// gossip logs a message of a member that memberlist must not see.
func (l *failureLog) gossip(from *hello, remote net.Addr, err error) {
	if level, due := l.due(failure{"gossip dropped", wire.MemberID(from.Member).String(), string(ReasonMalformed)}); due {
		l.log.Log(context.Background(), level, "gossip dropped", "member", wire.MemberID(from.Member), "addr", remote.String(), "error", err)
	}
}

// due records a failure and reports whether it must be logged now, and at which level.
func (l *failureLog) due(f failure) (level slog.Level, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	o := l.seen[f]
	if o == nil || now.Sub(o.last) >= failureInterval {
		if o = l.begin(f, now); o == nil {
			return 0, false
		}
	}
	o.last = now
	level = slog.LevelDebug
	if needsOperator(f.reason) && (!passes(f.reason) || now.Sub(o.first) >= failureGrace) &&
		(o.logged.IsZero() || now.Sub(o.logged) >= failureInterval) {
		level, o.logged = slog.LevelWarn, now
	}
	if level == slog.LevelDebug && !o.repeated.IsZero() && now.Sub(o.repeated) < repeatInterval {
		return 0, false
	}
	o.repeated = now
	return level, true
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
// the other that a group has formed or that a member has moved, names appear when a
// process starts, and a removed member stops.
func passes(reason string) bool {
	switch reason {
	case string(ReasonNoCluster), string(ReasonNotMember), string(ReasonRemoved), string(ReasonAddress), string(ReasonNoClients), reasonUnresolved:
		return true
	}
	return false
}

// JoinFailures logs failed joins. Failures of TLS and of the handshake, which need an
// operator, are warnings, at most one in a minute for each address and reason. All
// others, such as a member that is down, are logged at debug level.
type JoinFailures struct {
	mu   sync.Mutex
	last map[[2]string]time.Time // guarded by mu; by address and reason
}

const (
	failurePause   = time.Minute
	maxJoinFailure = 256
)

// Log logs a failure.
func (f *JoinFailures) Log(to *slog.Logger, addr string, err error) {
	reason := HandshakeFailure(err)
	if reason == "" {
		to.Debug("join failed", "addr", addr, "error", err)
		return
	}
	if f.isDue(addr, reason, time.Now()) {
		to.Warn("join failed", "addr", addr, "reason", reason, "error", err)
	}
}

func (f *JoinFailures) isDue(addr, reason string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := [2]string{addr, reason}
	if last, ok := f.last[key]; ok && now.Sub(last) < failurePause {
		return false
	}
	if f.last == nil || len(f.last) >= maxJoinFailure {
		f.last = make(map[[2]string]time.Time)
	}
	f.last[key] = now
	return true
}
