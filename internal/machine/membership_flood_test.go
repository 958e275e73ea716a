package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// Members that were admitted and never registered leave nothing behind for ever: a stranger
// that may connect can have any number of them admitted, 16 in each AdmissionTTL.
func TestMembership_NeverRegisteredForgotten(t *testing.T) {
	d := newDriver(t)
	d.m.split = 100
	key := make([]byte, publicKeySize)
	for round := range uint64(100) {
		for i := range uint64(MaxUnregistered) {
			d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{
				Member: 100 + round*MaxUnregistered + i, Key: key, Advertise: "127.0.0.1:1",
			}}}))
		}
		d.time += AdmissionTTL
		for due, ok := d.m.NextDeadline(); ok && due <= d.time; due, ok = d.m.NextDeadline() {
			d.do(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})
		}
	}
	if n := len(d.m.members); n > 200 {
		t.Errorf("%d members are kept, %d of them removed", n, len(d.m.Removed()))
	}
}
