package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// peer keeps the outbound connection to one member up: its breaking is how a
// crash is noticed at once.
type peer struct {
	t      *Transport
	member uint64
	ctx    context.Context // ends when the peer is removed
	cancel context.CancelFunc
	queue  *queue[*wire.Frame]
	wake   chan struct{} // holds a token: dial without further waiting

	mu      sync.Mutex // guards what follows
	addr    string
	abandon context.CancelFunc // ends the attempt or connection to an address that is out of date
	err     error              // why there is no connection; nil: there is one
}

func (p *peer) start() { p.t.goroutines.start("peer writer", p.run) }

func (p *peer) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// move changes the address; what goes on with the old one is given up.
func (p *peer) move(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addr == addr {
		return
	}
	p.addr = addr
	p.abandon()
	p.kick()
}

// run dials again and again, until the peer is removed. The waits grow while
// connections fail or last no longer than the longest wait.
func (p *peer) run() {
	defer p.cancel()
	timing := p.t.cfg.Timing
	wait := timing.BackoffMin
	for p.ctx.Err() == nil {
		began := time.Now()
		p.fail(p.once())
		if time.Since(began) > timing.Dial+timing.BackoffMax {
			wait = timing.BackoffMin
		}
		if p.pause(wait) {
			wait = timing.BackoffMin
			continue
		}
		wait = min(2*wait, timing.BackoffMax)
	}
}

// pause waits before the next dial; true: it was cut short by a kick.
func (p *peer) pause(wait time.Duration) bool {
	timer := time.NewTimer(p.t.cfg.Jitter(wait))
	defer timer.Stop()
	select {
	case <-p.wake:
		return true
	case <-timer.C:
	case <-p.ctx.Done():
	}
	return false
}

// once makes one connection and serves it until it breaks.
func (p *peer) once() error {
	if p.t.identity().Cluster.IsZero() {
		return ErrNotJoined
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	p.mu.Lock()
	addr := p.addr
	p.abandon = cancel
	p.mu.Unlock()

	c, err := p.t.connect(ctx, addr, wire.Kind_PEER, p.member)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	return p.serve(newStream(c, p.t.cfg.Timing, p.t.cfg.Limits.Frame))
}

// serve writes the queue to the stream. The other end sends nothing but beats;
// that it falls silent or closes is what its reader is there to notice.
func (p *peer) serve(s *stream) error {
	p.queue.setOpen(true)
	defer p.queue.setOpen(false)
	p.fail(nil)
	broken := make(chan error, 1)
	started := p.t.goroutines.start("peer reader", func() {
		defer func() { _ = s.Close() }()
		_, err := s.read()
		if err == nil {
			err = fmt.Errorf("%w: a frame came back", ErrBadFrame)
		}
		broken <- err
	})
	if !started {
		_ = s.Close()
		return ErrClosed
	}
	encode := func(buf []byte, f *wire.Frame) ([]byte, error) { return appendMessage(buf, f) }
	err := s.pump(p.queue.ready, func(s *stream) error { return drain(s, p.queue, encode) }, 0)
	if read := <-broken; isClosed(err) { // the reader knows more
		err = read
	}
	return fmt.Errorf("transport: connection to member %x lost: %w", p.member, err)
}

// fail records the state of the connection, and logs it when it is of another
// kind than before.
func (p *peer) fail(err error) {
	p.mu.Lock()
	last := p.err
	p.err = err
	addr := p.addr
	p.mu.Unlock()
	if p.ctx.Err() != nil || kindOf(last) == kindOf(err) {
		return
	}
	log := p.t.log().With("peer", fmt.Sprintf("%x", p.member), "addr", addr)
	var refused *RefusedError
	if errors.As(err, &refused) && !refused.Here && refused.Reason == ReasonLeft && p.t.cfg.ToldLeft != nil {
		p.t.cfg.ToldLeft()
	}
	switch {
	case err == nil:
		log.Info("connected")
	case errors.As(err, &refused):
		log.Log(p.ctx, refused.level(), "connection refused", "err", err)
	default:
		log.Info("not connected", "err", err)
	}
}

// kindOf classes errors that differ in details only, such as port numbers.
func kindOf(err error) string {
	var refused *RefusedError
	switch {
	case err == nil:
		return "connected"
	case errors.As(err, &refused):
		return string(refused.Reason)
	case errors.Is(err, ErrPlaintext), errors.Is(err, ErrNotJoined), errors.Is(err, ErrNotConclave):
		return err.Error()
	}
	return "unreachable"
}
