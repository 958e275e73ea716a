package machine

import (
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/proto"

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
	if n := len(d.m.members) + len(d.m.former.byID); n > 200 {
		t.Errorf("%d members are kept, %d of them removed", n, len(d.m.Removed()))
	}
}

// What a member costs that joins and leaves does not depend on how many have done so before.
func TestGrowth_FormerMembers(t *testing.T) {
	d := newDriver(t)
	d.do(&wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{Voters: 3, ReplaceAfter: 60 * second}}})
	const few = 20
	visited := uint64(0)
	for n := range uint64(2_000) {
		before := d.m.visits.Total()
		d.joinAndLeave(n)
		if n == few {
			visited = d.m.visits.Total() - before
		}
		if visits := d.m.visits.Total() - before; n > few && visits > visited+20 { // the depth of a tree
			t.Fatalf("after %d members one more looks at %d elements, and after %d at %d", n, visits, few, visited)
		}
	}
	if n := len(d.m.Removed()); n != 2_000 {
		t.Errorf("%d removed members", n)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
	m := must(Load(d.disk.pairs()))
	if err := audit(m); err != nil || len(m.Removed()) != 2_000 {
		t.Errorf("loaded: %d removed members, %v", len(m.Removed()), err)
	}
}

// joinAndLeave admits a member, registers it and removes it, and asks what a leader asks after
// each entry.
func (d *driver) joinAndLeave(n uint64) {
	d.tb.Helper()
	key := binary.BigEndian.AppendUint64(make([]byte, publicKeySize-8), n+1)
	id := wire.FingerprintOf(key)
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{Member: id, Key: key}}}))
	inc := wire.ID(key[16:])
	inc[0] = 1
	register := &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{Member: id, Boot: 1, Ttl: 60 * second, NextToken: inc[:], Key: key}}}
	d.want(wire.Code_OK, d.submit(&wire.Submission{Incarnation: inc[:], Member: id, Calls: []*wire.Call{{Seq: 1, Command: must(proto.Marshal(register))}}}).Outcomes)
	d.m.Liveness()
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Member: id, Voters: []uint64{1}}}}))
	d.m.Members()
	d.m.Removed()
	d.m.Registered()
	d.m.NextLevel(nil)
	d.m.NextDeadline()
}
