package cluster

import (
	"bytes"
	"context"
	"testing"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// One process that states that it belongs to a cluster, and is gone again, must not keep two
// founders from forming a group for ever.
func TestForming_StrangerClaimsCluster(t *testing.T) {
	t.Skip("finding: Identity.Seen is stored for good on the word of one process, whose group nobody has confirmed")
	v := newFounders(t, 1, 2, 2)
	low, _ := strangers(v.founders[0], 1)
	liar := low[0]
	liar.Cluster = bytes.Repeat([]byte{9}, 16)
	f := v.founders[0]
	send := f.forming.send
	f.forming.send = func(ctx context.Context, to transport.Target, r *wire.FormRequest) (*wire.FormReply, error) {
		if to.Member == liar.GetMember() {
			return nil, errLost // it is gone already
		}
		return send(ctx, to, r)
	}
	f.candidates.find(liar) // it has asked, and answered once when it was asked back
	if _, err := f.formOrJoin(context.Background()); err != nil {
		t.Fatal(err)
	}
	v.settle() // the stranger is gone
	f.crash()
	f.start()
	v.settle()
	if v.ungrouped() > 0 {
		t.Errorf("%d of 2 founders never form a group: %v", v.ungrouped(), f.missingFounders())
	}
}

// The member that answers an admission belongs to the cluster that it states.
func TestJoin_AdmissionOfAnotherCluster(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	low, _ := strangers(f, 1)
	member := low[0]
	member.Cluster = bytes.Repeat([]byte{9}, 16)
	f.candidates.find(member)
	f.forming.send = func(context.Context, transport.Target, *wire.FormRequest) (*wire.FormReply, error) {
		return &wire.FormReply{Member: member.GetMember(), Candidate: member, Admission: &wire.Admission{Cluster: bytes.Repeat([]byte{7}, 16)}}, nil
	}
	joined, err := f.formOrJoin(context.Background())
	if joined || f.identity.get().GetJoined() {
		t.Errorf("joined cluster %x, which the member does not state: %v", f.identity.get().GetCluster(), err)
	}
}
