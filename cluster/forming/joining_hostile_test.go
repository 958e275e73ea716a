package forming

import (
	"bytes"
	"context"
	"testing"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// The member that answers an admission belongs to the cluster that it states.
func TestJoin_AdmissionOfAnotherCluster(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	low, _ := strangers(f, 1)
	member := low[0]
	member.Cluster = bytes.Repeat([]byte{9}, 16)
	f.candidates.find(member)
	f.port.form = func(context.Context, transport.Target, *wire.FormRequest) (*wire.FormReply, error) {
		return &wire.FormReply{Member: member.GetMember(), Candidate: member, Admission: &wire.Admission{Cluster: bytes.Repeat([]byte{7}, 16)}}, nil
	}
	joined, err := f.formOrJoin(context.Background())
	if joined || f.cfg.Identity.Get().GetJoined() {
		t.Errorf("joined cluster %x, which the member does not state: %v", f.cfg.Identity.Get().GetCluster(), err)
	}
}
