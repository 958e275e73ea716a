package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// hostileClient connects a client that speaks the protocol by itself.
func hostileClient(t *testing.T, addr string) *hostile.Conn {
	t.Helper()
	key := hostile.NewKey()
	c, refusal, err := hostile.Connect(addr, key, hostile.ClientHello(key, "test"))
	if err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	return c
}

func TestClientConn_MalformedFrameCloses(t *testing.T) {
	a, ended := serving(t, nil)
	damaged := appendFrame(nil, []byte("x"))
	damaged[5] ^= 1
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"oversized":    {[]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, ErrTooLarge},
		"over by one":  {binary.BigEndian.AppendUint32(nil, 1<<20+64<<10+1), ErrTooLarge},
		"damaged":      {damaged, ErrBadFrame},
		"not protobuf": {appendFrame(nil, []byte{0xff, 0xff, 0xff}), ErrBadFrame},
		"not UTF-8":    {appendFrame(nil, []byte{0x22, 0x03, 0x12, 0x01, 0xff}), ErrBadFrame}, // the kind of a request
	} {
		t.Run(name, func(t *testing.T) {
			conn := hostileClient(t, a.addr)
			defer conn.Close()
			if _, err := conn.Write(append(c.in, make([]byte, 8)...)); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if _, err := conn.AwaitClose(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A client that announces the largest frame, and sends the beginning of it, makes the member
// allocate no more than what has arrived calls for. A pipe's write returns when the bytes
// have been read.
func TestClientConn_AnnouncedLengthNotAllocated(t *testing.T) {
	const clients, sent = 200, 10_000
	n := newMemNet()
	ended := make(chan error, clients)
	start(t, identity(1), n.listen("a"), func(c *Config) {
		c.Client = echo(ended)
		// No client reads, so a keep-alive would end its connection in place of what it has sent.
		c.Timing.ClientKeepAlive, c.Timing.KeepAliveTimeout, c.Timing.Hello = time.Hour, time.Hour, time.Hour
		c.Limits.Handshakes, c.Limits.Strangers = clients, clients // the ends of some may come late
	})
	var conns []net.Conn
	for range clients {
		raw, err := n.dial(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		key := hostile.NewKey()
		if _, refusal, err := hostile.Over(raw, key, hostile.ClientHello(key, "test")); err != nil || refusal != "" {
			t.Fatal(refusal, err)
		}
		conns = append(conns, raw)
	}
	before := heap()
	begun := append(binary.BigEndian.AppendUint32(nil, 1<<20), make([]byte, 4+sent)...)
	for _, c := range conns {
		if _, err := c.Write(begun); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap()) - int64(before); grown > clients*5*sent {
		t.Errorf("%d bytes for each client, which has sent %d", grown/clients, sent)
	}
	for _, c := range conns {
		c.Close()
	}
	for range conns {
		if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
}

func TestReadFrame_AllocatesWhatArrives(t *testing.T) {
	body := make([]byte, 1<<20)
	frame := appendFrame(nil, body)
	for _, arrived := range []int{0, 1, 4 << 10, 5 << 10, 100 << 10, 1 << 20} {
		r := &countingReader{data: frame[:frameHeader+arrived]}
		_, err := readFrame(r, 1<<20, nil)
		if complete := arrived == len(body); complete != (err == nil) {
			t.Fatal(arrived, err)
		}
		if most := max(4<<10, 4*arrived); r.largest > most {
			t.Errorf("%d bytes have arrived, and room for %d was there", arrived, r.largest)
		}
	}
	// A buffer that is large enough is used.
	buf := make([]byte, 0, 1<<20)
	if got, err := readFrame(&countingReader{data: frame}, 1<<20, buf); err != nil || &got[0] != &buf[:1][0] {
		t.Error("a large buffer was not used", err)
	}
}

// countingReader notes the largest buffer that it was asked to fill.
type countingReader struct {
	data    []byte
	largest int
}

func (r *countingReader) Read(b []byte) (int, error) {
	r.largest = max(r.largest, len(b))
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.data)
	r.data = r.data[n:]
	return n, nil
}

// Close of either side during connects, sends and reads leaks nothing, and they return.
func TestClientConn_CloseRaces(t *testing.T) {
	for round := range 8 {
		ended := make(chan error, 100_000)
		a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Client = echo(ended) })
		d := dialer(t, func(c *DialerConfig) { c.Limits.ClientQueueBytes = 10_000 })
		var wg sync.WaitGroup
		first := make(chan struct{})
		var once sync.Once
		for n := range 4 {
			wg.Go(func() {
				for {
					c, err := d.Connect(context.Background(), Target{Addr: a.addr}, clientKey(n), wire.ID{})
					if err != nil {
						return // one of the sides is closed
					}
					wg.Go(func() {
						for c.Send(renewal(1), 1) && c.SendWait(context.Background(), renewal(2), 5000) == nil {
						}
					})
					for i := 0; c.Read(new(wire.MemberFrame)) == nil; i++ {
						once.Do(func() { close(first) })
						if i == 20 {
							c.Close(fmt.Errorf("round %d", round))
						}
					}
					if c.Err() == nil {
						t.Error("Read failed on an open connection")
					}
				}
			})
		}
		<-first
		if round%2 == 0 {
			a.Close()
			d.Close()
		} else {
			d.Close()
			a.Close()
		}
		wg.Wait()
		checkReleased(t, a)
	}
}
