package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// clientPair is both ends of a client's connection over memNet, in a bubble.
type clientPair struct {
	member, client *ClientConn
	// Closed: what is sent is lost.
	toMember, toClient chan struct{}
	a                  *node
	d                  *Dialer
}

func newClientPair(t *testing.T, l Limits) *clientPair {
	t.Helper()
	n := newMemNet()
	p := &clientPair{toMember: make(chan struct{}), toClient: make(chan struct{})}
	served := make(chan *ClientConn)
	p.a = start(t, identity(1), n.listen("a"), func(c *Config) {
		c.Limits = l
		c.Client = func(cc *ClientConn) { served <- cc; <-cc.Done() }
	})
	p.d = dialer(t, func(c *DialerConfig) {
		c.Limits = l
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := n.dial(ctx, addr)
			return &oneWayConn{
				Reader: &lossyConn{Conn: conn, partition: p.toClient}, Writer: &lossyConn{Conn: conn, partition: p.toMember}, Conn: conn,
			}, err
		}
	})
	p.client = mustConnect(t, p.d, "a")
	p.member = <-served
	return p
}

// oneWayConn loses what is sent in either direction separately.
type oneWayConn struct {
	io.Reader
	io.Writer
	net.Conn
}

func (c *oneWayConn) Read(b []byte) (int, error)  { return c.Reader.Read(b) }
func (c *oneWayConn) Write(b []byte) (int, error) { return c.Writer.Write(b) }

// part is an answer whose payload has a size.
func part(size int) *wire.MemberFrame {
	return &wire.MemberFrame{Body: &wire.MemberFrame_Answer{Answer: &wire.Answer{Part: make([]byte, size)}}}
}

// What is offered to a full queue, and what the other end would refuse for its size, is not sent,
// and the connection stays open.
func TestClientConn_NotSentAndOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClientPair(t, Limits{ClientQueueBytes: 4 << 20, ClientFrame: 1 << 20})
		request := func(size int) *wire.ClientFrame {
			return &wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: &wire.Request{Body: make([]byte, size)}}}
		}
		if err := p.client.SendWait(t.Context(), request(1<<20+1), 1<<20); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a frame that is too large: %v", err)
		}
		const size = 500 << 10
		for _, bulk := range []bool{true, false} {
			n := 0
			for p.client.Offer(request(size), size, bulk) {
				n++
			}
			// The other half, and what is being written meanwhile.
			if least := 2 << 20 / (size + itemBytes) / 2; n < least {
				t.Errorf("bulk %v: %d were queued", bulk, n)
			}
		}
		if err := p.client.Err(); err != nil {
			t.Error(err)
		}
		if err := p.member.Read(new(wire.ClientFrame)); err != nil {
			t.Error(err)
		}
	})
}

// A client that does not read is closed as soon as its queue is full, and Send never blocks.
func TestClientConn_QueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClientPair(t, Limits{ClientQueueBytes: 100_000})
		sent := 0
		for p.member.Send(part(1000), 1000) {
			sent++
		}
		if want := 100_000 / (1000 + itemBytes); sent != want {
			t.Errorf("%d messages were queued, want %d", sent, want)
		}
		if err := p.member.Err(); !errors.Is(err, ErrQueueFull) {
			t.Error(err)
		}
		<-p.member.Done()
		if err := p.client.Read(new(wire.MemberFrame)); !isClosed(err) {
			t.Error(err)
		}
		if items, bulk, bytes := p.member.queue.Len(); items+bulk+bytes != 0 {
			t.Error("the queue of a closed connection keeps its memory")
		}
	})
}

// A client that takes no bytes at all is closed even if little is queued.
func TestClientConn_WriteStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClientPair(t, Limits{})
		go func() { // the member reads, so that it learns of the stall by its writes only
			_ = p.member.Read(new(wire.ClientFrame))
		}()
		began := time.Now()
		p.member.Send(part(1), 1)
		<-p.member.Done()
		if d := time.Since(began); !errors.Is(p.member.Err(), ErrQueueFull) || d != p.a.cfg.Timing.KeepAliveTimeout {
			t.Errorf("after %v: %v", d, p.member.Err())
		}
	})
}

// SendWait uses a quarter of the queue, in order, and Send has the rest meanwhile.
func TestClientConn_SendWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 10_000 - itemBytes
		p := newClientPair(t, Limits{ClientQueueBytes: 120_000})
		var queued []int
		done := make(chan error)
		go func() {
			for i := range 10 {
				if err := p.member.SendWait(t.Context(), renewed(uint64(i)), size); err != nil {
					done <- err
					return
				}
				queued = append(queued, i)
			}
			done <- nil
		}()
		synctest.Wait()
		if len(queued) != 3 { // of which one is being written
			t.Errorf("%d messages are queued, want 3", len(queued))
		}
		waiting, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the cause")
		abandoned := make(chan error)
		go func() { abandoned <- p.member.SendWait(waiting, renewed(99), 1) }()
		synctest.Wait()
		cancel(cause)
		if err := <-abandoned; err != cause {
			t.Errorf("abandoned: %v", err)
		}
		for range 9 {
			if !p.member.Send(renewed(100), size) {
				t.Fatal("Send has no room:", p.member.Err())
			}
		}
		next := uint64(0)
		for range 19 {
			f := new(wire.MemberFrame)
			if err := p.client.Read(f); err != nil {
				t.Fatal(err)
			}
			switch n := f.GetRenewed().GetNumber(); n {
			case 100:
			case next:
				next++
			default:
				t.Errorf("got message %d, want %d", n, next)
			}
		}
		if err := <-done; err != nil || next != 10 {
			t.Errorf("%d messages, %v", next, err)
		}
	})
}

// A message larger than a quarter is sent when the queue is empty; none larger than all.
func TestClientConn_SendWaitLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClientPair(t, Limits{ClientQueueBytes: 100_000})
		if err := p.member.SendWait(t.Context(), part(1), 100_000); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		if err := p.member.SendWait(t.Context(), part(90_000), 90_000); err != nil {
			t.Error(err)
		}
		ended := make(chan error)
		go func() { ended <- p.member.SendWait(t.Context(), part(1), 1) }()
		synctest.Wait()
		p.member.Close(nil)
		if err := <-ended; err != ErrClosed {
			t.Errorf("closed meanwhile: %v", err)
		}
	})
}

// An idle connection lives. When nothing arrives any more at either end, that end closes it
// in time.
func TestClientConn_KeepAlive(t *testing.T) {
	for name, lose := range map[string]func(p *clientPair) (silent *ClientConn){
		"the client is silent": func(p *clientPair) *ClientConn { close(p.toMember); return p.member },
		"the member is silent": func(p *clientPair) *ClientConn { close(p.toClient); return p.client },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newClientPair(t, Limits{})
				go func() { _ = p.member.Read(new(wire.ClientFrame)) }()
				go func() { _ = p.client.Read(new(wire.MemberFrame)) }()
				time.Sleep(time.Hour)
				synctest.Wait()
				if err := errors.Join(p.member.Err(), p.client.Err()); err != nil {
					t.Fatal("an idle connection was closed:", err)
				}
				if got := p.a.goroutines.count(); got != 3 { // and accept
					t.Errorf("the member has %d goroutines, want 3", got)
				}
				began := time.Now()
				end := lose(p)
				<-end.Done()
				if d := time.Since(began); !errors.Is(end.Err(), ErrSilent) || d > p.a.cfg.Timing.KeepAliveTimeout {
					t.Errorf("after %v: %v", d, end.Err())
				}
			})
		})
	}
}

// A message beyond what the other end accepts, or one that cannot be encoded, closes the
// connection with the cause at its sender.
func TestClientConn_UnsendableMessage(t *testing.T) {
	for name, c := range map[string]struct {
		m    *wire.ClientFrame
		want string
	}{
		"too large": {&wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: &wire.Request{Body: make([]byte, 2<<20)}}}, ErrTooLarge.Error()},
		"not UTF-8": {&wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: &wire.Request{Kind: "\xff"}}}, "UTF-8"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newClientPair(t, Limits{})
			if !p.client.Send(c.m, 1) {
				t.Fatal(name, p.client.Err())
			}
			<-p.client.Done()
			wantParts(t, p.client.Err(), c.want, "connection to member "+text(1))
		})
	}
}
