package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"

	"github.com/conclave-go/conclave/internal/appcall"
	"github.com/conclave-go/conclave/internal/wire"
)

// Dialer connects clients, processes that are no members, to members. It owns its
// connections and their goroutines.
type Dialer struct {
	cfg        DialerConfig // with defaults
	tls        *tlsPair
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	goroutines *goroutines
	failures   *failureLog
	answered   answered

	mu     sync.Mutex // guards what follows
	closed bool
	conns  map[*conn]struct{} // every open connection
}

// DialerConfig configures a Dialer. The fields mean what they mean in Config.
type DialerConfig struct {
	Group, Name string // of the group, and of this process
	// FurtherGroup is the number of the group that the connections are for; 0: the default group.
	FurtherGroup uint32
	// Beside says that the application's functions are those of another Dialer as well, whose Close comes later and waits for them.
	Beside   bool
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	Calls    *appcall.Calls
	Lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	TLS      *tls.Config // needs no certificate for being dialed; nil: plaintext
	Insecure bool
	// Admit is asked about each member that has proven its key; nil: no objection. The text
	// of its error is the refusal; a *RefusedError keeps its Reason. It returns once Closed of
	// the Peer is closed.
	Admit  func(Peer) error
	Logger *slog.Logger
	Timing Timing
	Limits Limits
}

// NewDialer validates cfg. The error lists every fault.
func NewDialer(cfg DialerConfig) (*Dialer, error) {
	cfg.Limits.complete()
	cfg.Timing.complete()
	if cfg.Calls == nil {
		cfg.Calls = new(appcall.Calls)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	var faults []error
	if err := checkDialerTLS(cfg.TLS); err != nil {
		faults = append(faults, fmt.Errorf("transport: %w", err))
	}
	if n := len(cfg.Group) + len(cfg.Name); n > maxIdentity {
		faults = append(faults, fmt.Errorf("transport: group and name exceed the limit: got %d bytes, want at most %d", n, maxIdentity))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Dialer{
		cfg: cfg, tls: newTLSPair(cfg.TLS, cfg.Calls), ctx: ctx, cancel: cancel,
		goroutines: &goroutines{member: "none"}, failures: newFailureLog(cfg.Logger), conns: make(map[*conn]struct{}),
	}, nil
}

// Resolve returns what to dial for an address: one target for each address that its host name
// has now, at most 64, in random order, since thousands of clients must not all try the same
// member first; or a target for the address itself. It blocks until Lookup, or the name service,
// answers, ctx is done, or Timing.Dial has passed. The error is a *ConnectError.
func (d *Dialer) Resolve(ctx context.Context, addr string) ([]Target, error) {
	bounded, cancel := d.bounded(ctx)
	defer cancel()
	targets, err := d.network().resolve(bounded, addr)
	if err != nil {
		err = &ConnectError{Addr: addr, Client: true, Err: err}
		d.failures.outbound(ctx, Target{Addr: addr}, err)
		return nil, err
	}
	rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	return targets, nil
}

// Resolves reports whether Resolve looks up the host of an address.
func (d *Dialer) Resolves(addr string) bool { return d.network().resolves(addr) }

// bounded returns a context that ends with ctx, with Close, and after Timing.Dial.
func (d *Dialer) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	stoppable, stop := context.WithCancelCause(ctx)
	closing := context.AfterFunc(d.ctx, func() { stop(ErrClosed) })
	bounded, cancel := context.WithTimeout(stoppable, d.cfg.Timing.Dial)
	return bounded, func() {
		cancel()
		closing()
		stop(nil)
	}
}

// Connect connects to the member at a target, as the client that key belongs to. It accepts the
// members of one cluster only; of any cluster with the group's name if that is zero: the one
// found is in the Peer of the connection.
//
// It blocks until the connection is established, ctx is done, or Timing.Dial has passed. The
// error is a *RefusedError or a *ConnectError. A refusal because of ReasonKind comes from a
// build that knows no clients.
func (d *Dialer) Connect(ctx context.Context, to Target, key ed25519.PrivateKey, cluster wire.ID) (*ClientConn, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, &ConnectError{Addr: to.Addr, Client: true, Err: fmt.Errorf("invalid key: want %d bytes, got %d", ed25519.PrivateKeySize, len(key))}
	}
	bounded, cancel := d.bounded(ctx)
	defer cancel()
	c, err := d.connect(bounded, to, key, cluster)
	if err != nil {
		d.failures.outbound(bounded, to, err)
		return nil, err
	}
	return c, nil
}

func (d *Dialer) connect(ctx context.Context, to Target, key ed25519.PrivateKey, cluster wire.ID) (*ClientConn, error) {
	failed := func(handshake bool, err error) error {
		if d.ctx.Err() != nil && !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		return &ConnectError{Addr: to.Addr, Host: to.Host, Client: true, Handshake: handshake, Answered: d.answered.has(to.Addr), Err: err}
	}
	c, err := d.network().dial(ctx, to, d.track)
	if err != nil {
		return nil, failed(false, withCause(ctx, err))
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // unblocks greet
	h, err := d.greet(c, to, key, cluster)
	if !stop() {
		err = withCause(ctx, err)
	}
	if err == nil {
		d.answered.note(to.Addr)
		l := d.cfg.Limits
		cc := newClientConn(c, peerOf(c, h, wire.Kind_CLIENT), d.cfg.Timing, clientLimits{read: l.Frame, write: l.ClientFrame, queue: l.ClientQueueBytes})
		if d.goroutines.start("client writer", cc.write) {
			return cc, nil
		}
		err = ErrClosed
	}
	_ = c.Close() // err is the error to report
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return nil, refused
	}
	return nil, failed(true, err)
}

// greet is a client's half of the handshake (see handshake.go).
func (d *Dialer) greet(c *conn, to Target, key ed25519.PrivateKey, cluster wire.ID) (*hello, error) {
	if err := handshakeTLS(c, d.cfg.Calls); err != nil {
		return nil, err
	}
	public := key.Public().(ed25519.PublicKey) // always of that type
	id := clientIdentity(d.cfg.Group, d.cfg.Name, d.cfg.FurtherGroup, public, cluster)
	own, err := newHello(id, public, wire.Kind_CLIENT, 0, Durable{}, nil)
	if err != nil {
		return nil, err
	}
	h, x, refused, err := exchangeHellos(c, own)
	if err != nil {
		return nil, err
	}
	if refused != nil {
		refused.Addr, refused.Here = to.Addr, true
		return nil, refused
	}
	if err := writeProof(c, key, x, dialerProof, ""); err != nil {
		return nil, err
	}
	verdict, err := readProof(c, h.key, x, listenerVerdict)
	switch {
	case err != nil:
		return nil, err
	case verdict != "":
		return nil, d.refusedByMember(c, to, &id, h, verdict)
	}
	if refused := d.checkMember(c, to, &id, h); refused != nil {
		_ = writeProof(c, key, x, dialerVerdict, refused.text()) // best effort: refused is the error to report
		return nil, refused
	}
	return h, writeProof(c, key, x, dialerVerdict, "")
}

// refusedByMember reads the refusal of a member. One that knows no clients does not name
// the cause in words that help. That a group is deleted ends the sessions of the client there, so
// that is not taken from a process whose connection the client would have refused.
func (d *Dialer) refusedByMember(c *conn, to Target, own *Identity, h *hello, verdict string) *RefusedError {
	refused := parseRefusal(h.Member, to.Addr, verdict)
	refused.Name = h.Name
	switch refused.Reason {
	case ReasonKind:
		refused.Detail = fmt.Sprintf("the member at %s runs a build without clients: upgrade it, or connect to another member", to.Addr)
	case ReasonNoGroup:
		if here := d.checkMember(c, to, own, h); here != nil {
			return here
		}
	}
	return refused
}

// checkMember decides, at a client, about the proven hello of a member.
func (d *Dialer) checkMember(c *conn, to Target, own *Identity, h *hello) *RefusedError {
	refused := sameGroup(&h.Identity, own)
	switch {
	case refused != nil:
	case h.Member == own.Member:
		refused = &RefusedError{Reason: ReasonSelf, Detail: "the process that answered has the key of this client"}
	default:
		refused = askAdmission(d.cfg.Admit, c, h, wire.Kind_CLIENT)
	}
	if refused != nil {
		refused.Addr, refused.Here, refused.Member, refused.Name = to.Addr, true, h.Member, h.Name
	}
	return refused
}

// Close closes every connection and blocks until their goroutines have ended, but for those
// inside functions of the application, as Transport.Close does; with Beside it does not wait for
// such functions. Connects in progress fail with ErrClosed. It may be called more than once.
func (d *Dialer) Close() error {
	d.mu.Lock()
	d.closed = true
	open := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		open = append(open, c)
	}
	d.mu.Unlock()

	d.cancel()
	for _, c := range open {
		_ = c.Close() // the member is owed nothing
	}
	d.goroutines.wait()
	if !d.cfg.Beside {
		awaitApplication(d.cfg.Calls, d.cfg.Logger)
	}
	return nil
}

func (d *Dialer) track(raw net.Conn) (*conn, bool) { return track(raw, &d.mu, &d.closed, d.conns) }

func (d *Dialer) network() network {
	return network{dialer: d.cfg.Dial, resolver: d.cfg.Lookup, tls: d.tls, insecure: d.cfg.Insecure}
}
