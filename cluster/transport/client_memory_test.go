package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// Beyond the limit the connection is closed that has the most, of the host that has the most.
func TestClientMemory_ClosesLargestOfLargestHost(t *testing.T) {
	m := newClientMemory(100)
	var closed []string
	open := func(host, name string, bytes int) *clientAccount {
		a := m.open(host, func(err error) {
			if !errors.Is(err, ErrQueueFull) {
				t.Error(err)
			}
			closed = append(closed, name)
		})
		a.add(bytes)
		return a
	}
	large := open("alone", "large", 45)
	open("many", "small", 10)
	open("many", "larger", 20)
	open("many", "late", 18) // 48 of one host, and 93 of all
	open("idle", "idle", 0)
	large.add(2)
	if len(closed) > 0 {
		t.Fatalf("closed within the limit: %v", closed)
	}
	honest := open("honest", "honest", 6)
	if fmt.Sprint(closed) != "[larger]" || m.total != 47+10+18+6 {
		t.Fatalf("closed %v, %d bytes are left", closed, m.total)
	}
	large.add(-40)
	large.end()
	large.add(1000) // too late to count
	honest.add(-6)
	if m.total != 28 || len(m.accounts) != 2 {
		t.Errorf("%d bytes of %d connections are left", m.total, len(m.accounts))
	}
}

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
	m := a.clientMemory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total > limit || len(m.accounts) == 0 {
		t.Errorf("%d bytes for %d clients", m.total, len(m.accounts))
	}
}

// What is queued counts until it is written or the connection is closed.
func TestClientConn_QueueCounts(t *testing.T) {
	p := newClientPair(t, Limits{})
	m := p.a.clientMemory
	total := func() int { m.mu.Lock(); defer m.mu.Unlock(); return m.total }
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
	if total() != 0 {
		t.Errorf("%d bytes count for a closed connection", total())
	}
}
