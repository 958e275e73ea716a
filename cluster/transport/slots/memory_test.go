package slots

import (
	"errors"
	"fmt"
	"testing"
)

var errFull = errors.New("full")

// Beyond the limit the connection is closed that has the most, of the host that has the most.
func TestClientMemory_ClosesLargestOfLargestHost(t *testing.T) {
	m := NewMemory(100, errFull)
	var closed []string
	open := func(host, name string, bytes int) *Account {
		a := m.Open(host, func(err error) {
			if !errors.Is(err, errFull) {
				t.Error(err)
			}
			closed = append(closed, name)
		})
		a.Add(bytes)
		return a
	}
	large := open("alone", "large", 45)
	open("many", "small", 10)
	open("many", "larger", 20)
	open("many", "late", 18) // 48 of one host, and 93 of all
	open("idle", "idle", 0)
	large.Add(2)
	if len(closed) > 0 {
		t.Fatalf("closed within the limit: %v", closed)
	}
	honest := open("honest", "honest", 6)
	if fmt.Sprint(closed) != "[larger]" || m.total != 47+10+18+6 {
		t.Fatalf("closed %v, %d bytes are left", closed, m.total)
	}
	large.Add(-40)
	large.End()
	large.Add(1000) // too late to count
	honest.Add(-6)
	if m.total != 28 || len(m.accounts) != 2 {
		t.Errorf("%d bytes of %d connections are left", m.total, len(m.accounts))
	}
}
