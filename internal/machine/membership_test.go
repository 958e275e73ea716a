package machine

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// A group has a limited number of members, and fewer that have not registered. What is
// refused changes nothing.
func TestAdmission_Limits(t *testing.T) {
	m := New()
	submit := func(seq uint64, c *wire.Command) *wire.Reply {
		inc := wire.ID{1}
		data := must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{{
			Member: 1, Incarnation: inc[:], Calls: []*wire.Call{{Seq: seq, Command: encodeCommand(c)}},
		}}}))
		r := m.Apply(seq+1, 1, data)
		return r.Outcomes[0].Reply
	}
	submit(1, &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member: 1, Boot: 1, Ttl: MaxTTL, NextToken: bytes.Repeat([]byte{1}, 16), Key: bytes.Repeat([]byte{1}, 32),
	}}})
	admit := func(seq, id uint64) wire.Code {
		return submit(seq, &wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{
			Member: id, Key: bytes.Repeat([]byte{byte(id)}, 32),
		}}}).GetCode()
	}
	seq := uint64(2)
	for id := uint64(2); id < 2+MaxUnregistered; id, seq = id+1, seq+1 {
		if code := admit(seq, id); code != wire.Code_OK {
			t.Fatalf("member %d: %v", id, code)
		}
	}
	if code := admit(seq, 1000); code != wire.Code_BUSY || len(m.Members()) != 1+MaxUnregistered {
		t.Errorf("one more: %v, %d members", code, len(m.Members()))
	}
	if code := admit(seq+1, 2); code != wire.Code_OK {
		t.Errorf("one of them again: %v", code)
	}
}

// A removal that is refused leaves no member behind: in memory alone it would count in a limit and for the feature
// level, and a machine that was loaded from the changes would go on otherwise.
func TestRemoval_RefusedOfUnknown(t *testing.T) {
	d := newDriverAt(t, wire.LevelGroups)
	d.time = MinSilence
	dead := &wire.ReportGossip{Member: 1, Boot: 2, Term: 1}
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_ReportGossip{ReportGossip: dead}}))
	for id := range uint64(2 * MaxUnregistered) {
		d.want(wire.Code_INVALID, d.do(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Member: 100 + id}}}))
	}
	if !d.disk.equal(dump(d.m)) {
		t.Error("the changes do not add up to the state")
	}
	if agreed, loaded := d.m.common(nil), must(Load(d.disk.pairs())).common(nil); agreed != loaded {
		t.Errorf("the members support level %d, and once loaded %d", agreed, loaded)
	}
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{
		Member: 2, Key: bytes.Repeat([]byte{2}, publicKeySize),
	}}}))
}
