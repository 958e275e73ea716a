package machine

import (
	"testing"
)

// An entry that was expected to touch much, and did not, leaves no memory behind that each
// later one clears.
func TestDirty_MemoryAfterExpect(t *testing.T) {
	var d dirty
	d.expect(1 << 20)
	d.drop("key")
	if changes := d.flush(); len(changes) != 1 || cap(d.touched) > 2*maxKept {
		t.Errorf("%d changes; room for %d is kept", len(changes), cap(d.touched))
	}
}

// What an incarnation's end costs depends on its own tickets, and not on those of all that
// end in one entry.
func TestDirty_RememberTicketsOfOne(t *testing.T) {
	var d dirty
	a, b := &incarnation{id: [16]byte{1}}, &incarnation{id: [16]byte{2}}
	for seq := range uint64(3) {
		d.ticket(a, seq, 0, nil, true)
		d.ticket(b, seq, 0, nil, true)
	}
	d.rememberTickets(a)
	again := &incarnation{id: a.id}
	for seq := range uint64(4) {
		if at := d.ticket(again, seq, 0, nil, true); at != int32(2*seq) {
			t.Errorf("ticket %d is at %d", seq, at)
		}
		if len(d.tickets) != 3 {
			t.Errorf("%d tickets are remembered", len(d.tickets))
		}
	}
	d.flush()
	if at := d.lastTicket(a); at >= 0 {
		t.Errorf("after the entry its last ticket is at %d", at)
	}
}
