package forming

import (
	"testing"
	"testing/cryptotest"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// FuzzForm: whatever processes it has found, a new member proposes only what it would
// accept; and its answer to any request is the same when the request is repeated, and
// after a power loss. It admits no process: it has no group. A byte of found is a process,
// 1 to 4, and what it expects. In a request, 0 stands for the member and 1 to 4 for the
// processes.
func FuzzForm(f *testing.F) {
	const expectsThree = 3 << 2
	for _, body := range formRequests(f) {
		f.Add([]byte{expectsThree, expectsThree + 1, expectsThree + 2, expectsThree + 3}, body)
		f.Add([]byte{expectsThree, expectsThree + 2}, body)
		f.Add([]byte{1 << 2}, body)
		f.Add([]byte{}, body)
	}
	f.Fuzz(func(t *testing.T, found, request []byte) {
		cryptotest.SetGlobalRandom(t, 3)
		v := foundersOn(t, emptyDisks(1))
		v.expect = 3
		founder := v.founders[0]
		founder.start()
		low, high := strangers(founder, 2)
		processes := append(low, high...)
		meet := func() {
			for _, b := range found {
				process := proto.CloneOf(processes[b%4])
				process.Expect = uint32(b / 4 % 4)
				founder.candidates.find(process)
			}
		}
		meet()
		if err := founder.waitReason(); err == nil {
			t.Fatal("no reason for waiting")
		}
		if p := founder.propose(); p != nil {
			if why := founder.objection(p) + founder.doubt(founder.cfg.Identity.Member, founder.cfg.Identity.Public(), p); why != "" {
				t.Fatalf("proposes %v, and objects: %s", p, why)
			}
		}
		r := new(wire.FormRequest)
		if proto.Unmarshal(request, r) != nil || r.GetProposal() == nil || r.GetCandidate() == nil {
			return
		}
		named := append([]*wire.GossipMeta{founder.cfg.Meta()}, processes...)
		r.Candidate = named[r.GetCandidate().GetMember()%5]
		for _, f := range r.GetProposal().GetFounders() {
			meta := named[f.GetMember()%5]
			f.Member, f.Key = meta.GetMember(), meta.GetKey()
		}
		checkAnswerHolds(t, founder, r, meet)
	})
}

// formRequests returns requests to begin with.
func formRequests(f *testing.F) (bodies [][]byte) {
	add := func(r *wire.FormRequest) {
		body, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	ask := func(cluster byte, voters uint32, sender uint64, founders ...uint64) {
		r := &wire.FormRequest{Proposal: proposal(cluster, voters), Candidate: &wire.GossipMeta{Member: sender}}
		for _, n := range founders {
			r.Proposal.Founders = append(r.Proposal.Founders, &wire.Founder{Member: n})
		}
		add(r)
	}
	ask(1, 3, 1, 1, 0, 3)
	ask(1, 1, 1, 1, 0, 3)
	ask(2, 3, 1, 0, 1, 3)
	ask(1, 3, 1, 1, 0)
	ask(1, 4, 1, 1, 0, 3)
	ask(1, 3, 2, 1, 2, 0)
	ask(1, 3, 0, 0, 3, 4)
	add(&wire.FormRequest{Admit: true, Proposal: &wire.Proposal{}, Candidate: &wire.GossipMeta{Member: 1}})
	return append(bodies, []byte{}, nil)
}

// checkAnswerHolds repeats a request. meet restores what the search has found.
func checkAnswerHolds(t *testing.T, f *founder, r *wire.FormRequest, meet func()) {
	t.Helper()
	objection := f.doubt(r.GetCandidate().GetMember(), r.GetCandidate().GetKey(), r.GetProposal()) + f.objection(r.GetProposal())
	if r.GetAdmit() {
		objection = "it has no group"
	}
	first := f.Answer(r)
	if first.GetAdmission() != nil || first.GetAccepted() != (objection == "") || first.GetAccepted() == (first.GetRefusal() != "") {
		t.Fatalf("%v, and the objection is %q", first, objection)
	}
	for range 2 {
		if again := f.Answer(r); again.GetAccepted() != first.GetAccepted() || again.GetFinal() != first.GetFinal() {
			t.Fatalf("first %v, then %v", first, again)
		}
		f.crash()
		f.start()
		meet()
	}
}
