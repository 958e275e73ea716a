package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/cluster/transport/queue"
	"github.com/conclave-go/conclave/cluster/transport/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// peer keeps the outbound connection to one member up even without frames to
// send: a crash of the member is noticed at once because the connection breaks.
type peer struct {
	table  *peers
	member uint64
	ctx    context.Context // ends when the peer is removed
	cancel context.CancelFunc
	queue  *queue.Queue[*wire.Frame]
	wake   chan struct{} // holds a token: dial without further waiting
	cut    oneWayCut     // owned by run

	mu      sync.Mutex // guards what follows
	addr    string
	abandon context.CancelFunc // ends the attempt at, or connection to, an earlier address
	err     error              // why there is no connection; nil: there is one
}

func (p *peer) start() { p.table.goroutines.start("peer writer", p.run) }

func (p *peer) redial() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// setAddr changes the address and abandons the connection to the earlier one.
func (p *peer) setAddr(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addr == addr {
		return
	}
	p.addr = addr
	p.abandon()
	p.redial()
	p.table.cfg.Crashes.Dialed(p.member, false) // the refusals came from elsewhere
}

// run connects again and again until the peer is removed. The waits double up
// to the limit while connections fail or end soon.
func (p *peer) run() {
	defer p.cancel()
	timing := p.table.cfg.Timing
	wait := timing.BackoffMin
	for p.ctx.Err() == nil {
		began := time.Now()
		err := p.connectOnce()
		p.setState(err)
		if p.ctx.Err() == nil {
			p.cut.note(p, err)
		}
		if time.Since(began) > timing.Dial+timing.BackoffMax {
			wait = timing.BackoffMin
		}
		if p.backOff(wait) {
			wait = timing.BackoffMin
			continue
		}
		wait = min(2*wait, timing.BackoffMax)
	}
}

// backOff waits before the next dial. It returns true if redial ended the wait.
func (p *peer) backOff(wait time.Duration) bool {
	timer := time.NewTimer(p.table.cfg.Jitter(wait))
	defer timer.Stop()
	select {
	case <-p.wake:
		return true
	case <-timer.C:
	case <-p.ctx.Done():
	}
	return false
}

// connectOnce makes one connection and serves it until it breaks.
func (p *peer) connectOnce() error {
	if p.table.identity().Cluster.IsZero() {
		return ErrNotJoined
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	p.mu.Lock()
	addr := p.addr
	p.abandon = cancel
	p.mu.Unlock()

	c, err := p.table.dial(ctx, Target{Addr: addr, Member: p.member, Advertised: true}, wire.Kind_PEER)
	if err != nil {
		p.noteDial(addr, p.table.refused(ctx, addr, err))
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	closed := p.table.cfg.Crashes.Opened(crash.Process{Member: p.member, Boot: c.from.Boot}, c.from.Incarnation, crash.Outbound)
	defer func() { closed(c.endedByHost()) }()
	return p.serve(newStream(c, p.table.cfg.Timing, p.table.cfg.Limits.Frame))
}

// noteDial notes whether a dial was refused, if addr is the member's address still.
func (p *peer) noteDial(addr string, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addr == addr {
		p.table.cfg.Crashes.Dialed(p.member, refused)
	}
}

// serve writes the queue to the stream. The peer sends only keep-alives back;
// the reader is there to notice that they stop or that the connection closes.
func (p *peer) serve(s *stream) error {
	p.queue.Reset(true)
	defer p.queue.Reset(false)
	p.setState(nil)
	p.cut = oneWayCut{}
	if p.table.cfg.Reconnected != nil {
		p.table.cfg.Reconnected(p.member)
	}
	readErr := make(chan error, 1)
	started := p.table.goroutines.start("peer reader", func() {
		defer func() { _ = s.Close() }()
		_, err := s.read()
		if err == nil {
			err = fmt.Errorf("%w: unexpected on a one-way connection", ErrBadFrame)
		}
		readErr <- err
	})
	if !started {
		_ = s.Close()
		return ErrClosed
	}
	encode := func(buf []byte, f *wire.Frame) ([]byte, error) { return appendMessage(buf, f) }
	flush := func(s *stream) error { _, err := writeQueue(s, p.queue, encode); return err }
	err := s.writeLoop(p.queue.Ready, flush, 0)
	if read := <-readErr; isClosed(err) { // the reader knows the cause
		err = read
	}
	return fmt.Errorf("connection to member %v lost: %w", wire.MemberID(p.member), closedByPeer(err))
}

// setState records the state of the connection, and logs it if its reason has
// changed and the failure log does not report it.
func (p *peer) setState(err error) {
	p.mu.Lock()
	last, addr := p.err, p.addr
	p.err = err
	p.mu.Unlock()
	reason := reasonOf(err)
	if p.ctx.Err() != nil || !errors.Is(last, ErrNotConnected) && reasonOf(last) == reason {
		return
	}
	switch {
	case err == nil:
		p.table.cfg.Logger.Info("peer connected", "member", wire.MemberID(p.member), "addr", addr)
	case !needsOperator(reason):
		p.table.cfg.Logger.Info("peer not connected", "member", wire.MemberID(p.member), "addr", addr, "error", err)
	}
}

// oneWayCut logs, once in an outage, that a member reaches this one and is not reached: a member in contact with a
// majority looks for no fault, and the other one has none to see but that it hears nothing.
type oneWayCut struct {
	since  time.Time // of the failures with a connection from the member; zero: there is none
	logged bool
}

// oneWayGrace is how long a connection may be up in one direction only, as after a restart.
const oneWayGrace = 5 * time.Second

// note takes why an attempt to reach the member has failed, or its connection.
func (c *oneWayCut) note(p *peer, err error) {
	reason := reasonOf(err)
	p.table.mu.Lock()
	in := p.table.inbound[p.member]
	p.table.mu.Unlock()
	switch {
	case in == nil || reason != reasonUnreachable && reason != reasonTimeout:
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = time.Now()
	case !c.logged && time.Since(c.since) >= oneWayGrace:
		c.logged = true
		p.mu.Lock()
		addr := p.addr
		p.mu.Unlock()
		p.table.cfg.Logger.Warn("a member reaches this one and is not reached", "member", wire.MemberID(p.member), "addr", addr, "error", err,
			"remedy", "check the firewall at that address, the route to it, and Config.Advertise of that member")
	}
}

// HostOf returns the host of an address, as connections share slots by it.
func HostOf(addr string) string { return slots.HostOf(slots.Address(addr)) }

// host returns the host that the peer advertises.
func (p *peer) host() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return HostOf(p.addr)
}
