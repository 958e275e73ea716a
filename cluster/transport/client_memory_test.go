package transport

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// However many clients begin large frames, a member holds no more for all of them than its
// limit.
func TestClientConn_UnfinishedFramesBounded(t *testing.T) {
	const clients, limit = 8, 4 << 20 // a frame of 1 MiB counts twice: it is decoded
	a, ended := serving(t, func(c *Config) { c.Limits.ClientsBytes = limit })
	for range clients {
		conn := hostileClient(t, a.addr)
		defer conn.Close()
		header := binary.BigEndian.AppendUint32(nil, wire.MaxClientFrame)
		if _, err := conn.Write(append(header, make([]byte, 4+900<<10)...)); err != nil {
			t.Fatal(err)
		}
	}
	for range clients - 2 { // two fit
		if err := <-ended; !errors.Is(err, ErrQueueFull) {
			t.Error(err)
		}
	}
	if bytes, clients := a.clientMemory.Held(); bytes > limit || clients == 0 {
		t.Errorf("%d bytes for %d clients", bytes, clients)
	}
}

// What is queued counts until it is written or the connection is closed.
func TestClientConn_QueueCounts(t *testing.T) {
	p := newClientPair(t, Limits{})
	p.member.Hold(1000)
	for range 10 {
		if !p.member.Send(part(100), 100) {
			t.Fatal(p.member.Err())
		}
	}
	for range 10 {
		if err := p.client.Read(new(wire.MemberFrame)); err != nil {
			t.Fatal(err)
		}
	}
	p.member.Hold(-1000)
	p.member.Close(nil)
	if bytes, _ := p.a.clientMemory.Held(); bytes != 0 {
		t.Errorf("%d bytes count for a closed connection", bytes)
	}
}
