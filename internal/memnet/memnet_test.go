package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/memnet"
)

const addr = "127.0.0.1:7001"

// pair is a network of two members with a connection from 0 to 1.
type pair struct {
	*memnet.Network
	t         *testing.T
	listener  net.Listener
	near, far net.Conn
}

// inBubble runs a test in virtual time, which shows that waiting for the network
// is durably blocked.
func inBubble(t *testing.T, test func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{Network: memnet.New(2), t: t}
		p.listener = p.Listen(1, addr)
		defer p.listener.Close()
		p.near, p.far = p.connect()
		defer p.near.Close()
		defer p.far.Close()
		test(p)
	})
}

func (p *pair) connect() (near, far net.Conn) {
	p.t.Helper()
	near, err := p.Dial(p.t.Context(), 0, addr)
	if err != nil {
		p.t.Fatal(err)
	}
	if far, err = p.listener.Accept(); err != nil {
		p.t.Fatal(err)
	}
	return near, far
}

func send(t *testing.T, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

func wantReceived(t *testing.T, from net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("received %q, %v; want %q", got, err, want)
	}
}

// wantNothing checks that nothing arrives for a minute, the end included.
func wantNothing(t *testing.T, from net.Conn) {
	t.Helper()
	from.SetReadDeadline(time.Now().Add(time.Minute))
	defer from.SetReadDeadline(time.Time{})
	if n, err := from.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("received %d bytes, %v; want nothing", n, err)
	}
}

func wantReadError(t *testing.T, from net.Conn, want error) {
	t.Helper()
	if n, err := from.Read(make([]byte, 1)); n > 0 || !errors.Is(err, want) {
		t.Errorf("received %d bytes, %v; want %v", n, err, want)
	}
}

func TestConn(t *testing.T) {
	inBubble(t, func(p *pair) {
		send(p.t, p.near, "there")
		wantReceived(p.t, p.far, "there")
		send(p.t, p.far, "back")
		wantReceived(p.t, p.near, "back")
		if got := p.near.RemoteAddr().String(); got != addr {
			p.t.Errorf("connected to %s; want %s", got, addr)
		}
		send(p.t, p.near, "last")
		p.near.Close()
		wantReceived(p.t, p.far, "last")
		wantReadError(p.t, p.far, io.EOF)
		if _, err := p.far.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			p.t.Errorf("a write to a closed end: %v", err)
		}
		wantReadError(p.t, p.near, net.ErrClosed)
	})
}

// A write blocks when the receiver is slow, until its deadline.
func TestConn_FullWriteBlocksUntilDeadline(t *testing.T) {
	inBubble(t, func(p *pair) {
		p.near.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := p.near.Write(make([]byte, 1<<20))
		if n == 0 || n == 1<<20 || !errors.Is(err, os.ErrDeadlineExceeded) {
			p.t.Errorf("wrote %d bytes, %v", n, err)
		}
	})
}

func TestPartition_ArrivesAfterHeal(t *testing.T) {
	inBubble(t, func(p *pair) {
		p.Partition(0, 1)
		send(p.t, p.near, "there")
		send(p.t, p.far, "back")
		p.near.Close()
		wantNothing(p.t, p.far)
		p.Heal(0, 1)
		wantReceived(p.t, p.far, "there")
		wantReadError(p.t, p.far, io.EOF)
	})
}

func TestPartitionOneWay_OtherDirectionPasses(t *testing.T) {
	inBubble(t, func(p *pair) {
		p.PartitionOneWay(0, 1)
		send(p.t, p.near, "there")
		send(p.t, p.far, "back")
		wantReceived(p.t, p.near, "back")
		wantNothing(p.t, p.far)
		p.Heal(0, 1)
		wantReceived(p.t, p.far, "there")
	})
}

// Dialling waits while the link is cut, until its context ends or the link heals.
func TestDial_AcrossPartition(t *testing.T) {
	inBubble(t, func(p *pair) {
		p.Isolate(1)
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
		defer cancel()
		if _, err := p.Dial(ctx, 0, addr); !errors.Is(err, context.DeadlineExceeded) {
			p.t.Errorf("dialled across a partition: %v", err)
		}
		time.AfterFunc(time.Second, func() { p.Rejoin(1) })
		near, far := p.connect()
		send(p.t, near, "new")
		wantReceived(p.t, far, "new")
		near.Close()
		far.Close()
	})
}

func TestDial_ListenerClosed(t *testing.T) {
	inBubble(t, func(p *pair) {
		time.AfterFunc(time.Second, func() { p.listener.Close() })
		if err := p.AwaitClosed(p.t.Context(), addr); err != nil {
			p.t.Error(err)
		}
		if _, err := p.Dial(p.t.Context(), 0, addr); !errors.Is(err, syscall.ECONNREFUSED) {
			p.t.Errorf("dialled a closed listener: %v", err)
		}
		if _, err := p.listener.Accept(); !errors.Is(err, net.ErrClosed) {
			p.t.Errorf("accepted from a closed listener: %v", err)
		}
	})
}

func TestDelay_ArrivesLaterAndInOrder(t *testing.T) {
	inBubble(t, func(p *pair) {
		began := time.Now()
		p.Delay(0, 1, time.Second)
		send(p.t, p.near, "slow ")
		p.Delay(0, 1, 0)
		send(p.t, p.near, "fast")
		wantReceived(p.t, p.far, "slow fast")
		if took := time.Since(began); took != time.Second {
			p.t.Errorf("arrived after %v", took)
		}
		send(p.t, p.far, "back")
		wantReceived(p.t, p.near, "back")
	})
}

func TestReset_BothEndsFail(t *testing.T) {
	inBubble(t, func(p *pair) {
		send(p.t, p.near, "lost")
		p.Reset(1)
		wantReadError(p.t, p.near, syscall.ECONNRESET)
		wantReadError(p.t, p.far, syscall.ECONNRESET)
		if _, err := p.far.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			p.t.Errorf("a write after a reset: %v", err)
		}
	})
}

func TestDiscard_DropsWhatIsOnItsWay(t *testing.T) {
	inBubble(t, func(p *pair) {
		p.Isolate(0)
		send(p.t, p.near, "lost")
		p.Discard(0)
		p.Rejoin(0)
		send(p.t, p.near, "new")
		wantReceived(p.t, p.far, "new")
	})
}

func TestRefuse_BothDirections(t *testing.T) {
	inBubble(t, func(p *pair) {
		for _, member := range []int{0, 1} { // the one that dials, the one that is dialed
			p.Refuse(member)
			wantReadError(p.t, p.near, syscall.ECONNRESET)
			if _, err := p.Dial(p.t.Context(), 0, addr); !errors.Is(err, syscall.ECONNREFUSED) {
				p.t.Errorf("dialled: %v", err)
			}
			p.Accept(member)
			p.near, p.far = p.connect() // for the other member to break
		}
	})
}
