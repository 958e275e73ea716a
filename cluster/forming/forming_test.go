package forming

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Under faults of the search, the network and disks no two groups share a founder; after the
// faults there is a group, and the founders that are left have found one and form no other.
func TestForming_RandomFaults(t *testing.T) {
	for seed := range seeds(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := 3 + int(seed%3)
			v := newFounders(t, seed, n, 2+int(seed%2))
			v.faulty = true
			for range 60 {
				v.fault()
				v.check()
			}
			v.settle()
			if len(v.clusters) == 0 {
				t.Errorf("%d founders without a group, %d can form one", v.ungrouped(), v.expect)
			}
			for _, f := range v.founders {
				if members, err := f.formedGroup(); f.cfg.Identity.Cluster().IsZero() && err == nil && len(members) == 0 {
					t.Errorf("founder %d has found no group", f.n)
				}
			}
		})
	}
}

// seeds is how many seeds a test runs: a tenth with -short.
func seeds(all uint64) uint64 {
	if testing.Short() {
		return all / 10
	}
	return all
}

// Three founders form one group, after whichever save one of them crashes.
func TestForming_CrashAtEachSave(t *testing.T) {
	for n := range 3 {
		for saves := 1; saves <= 4; saves++ {
			t.Run(fmt.Sprintf("founder %d, save %d", n, saves), func(t *testing.T) {
				v := newFounders(t, 7, 3, 3)
				v.founders[n].saves = saves
				for range 3 {
					for _, f := range v.founders {
						if f.up {
							f.meets(true)
							f.attempt()
						}
					}
				}
				v.settle()
				if v.ungrouped() > 0 || len(v.clusters) != 3 {
					t.Errorf("%d founders without a group", v.ungrouped())
				}
				for _, f := range v.founders {
					if conf := f.cfg.Log; !conf.Bootstrapped() {
						t.Errorf("founder %d has no log", f.n)
					}
				}
			})
		}
	}
}

func proposal(cluster byte, voters uint32, founders ...*wire.GossipMeta) *wire.Proposal {
	p := &wire.Proposal{Cluster: bytes.Repeat([]byte{cluster}, 16), Voters: voters}
	for _, meta := range founders {
		p.Founders = append(p.Founders, wire.FounderOf(meta))
	}
	return p
}

// strangers returns processes with keys and the settings of f: n of them with lower and n
// with higher IDs than f, each set by ascending ID.
func strangers(f *founder, n int) (low, high []*wire.GossipMeta) {
	for i := 0; len(low) < n || len(high) < n; i++ {
		key := ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%032d", i)).Public().(ed25519.PublicKey)
		meta := f.cfg.Meta()
		meta.Member, meta.Key, meta.Advertise = wire.FingerprintOf(key), key, fmt.Sprint("stranger-", i)
		if meta.Member < f.cfg.Identity.Member && len(low) < n {
			low = append(low, meta)
		}
		if meta.Member > f.cfg.Identity.Member && len(high) < n {
			high = append(high, meta)
		}
	}
	for _, set := range [][]*wire.GossipMeta{low, high} {
		slices.SortFunc(set, func(x, y *wire.GossipMeta) int { return cmp.Compare(x.GetMember(), y.GetMember()) })
	}
	return low, high
}

// The answers to one request after the other, all from the founder with the lowest ID.
func TestForm_Answers(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	us := f.cfg.Meta()
	low, high := strangers(f, 2)
	first, second, unmet := low[0], high[0], high[1]
	request := func(p *wire.Proposal) *wire.FormReply {
		f.candidates.find(first)
		f.candidates.find(second)
		return f.Answer(&wire.FormRequest{Proposal: p, Candidate: first})
	}
	forged := proposal(10, 2, first, us)
	forged.Founders[0].Key = second.GetKey()
	good := proposal(1, 2, first, us)
	for _, step := range []struct {
		name            string
		p               *wire.Proposal
		accepted, final bool
	}{
		{"no cluster", &wire.Proposal{Founders: good.GetFounders(), Voters: 2}, false, false},
		{"too few founders", proposal(2, 1, first), false, true},
		{"too many founders", proposal(3, 2, first, us, second), false, true},
		{"founders out of order", proposal(4, 2, us, first), false, false},
		{"one founder twice", proposal(5, 2, first, first), false, true},
		{"a group of others", proposal(6, 2, first, second), false, true},
		{"no voters", proposal(7, 0, first, us), false, true},
		{"more voters than founders", proposal(8, 3, first, us), false, true},
		{"another key of the first founder", forged, false, false},
		{"not from its first founder", proposal(11, 2, us, second), false, false},
		{"with a founder that it has not met", proposal(12, 2, first, unmet), false, false},
		{"in order", good, true, false},
		{"the same again", good, true, false},
		{"the same cluster with other founders", proposal(1, 2, first, second), false, false},
		{"another one", proposal(9, 2, first, us), false, true},
		{"that one again", proposal(9, 2, first, us), false, true},
		{"one refused before", proposal(2, 2, first, us), false, true},
	} {
		reply := request(step.p)
		if reply.GetAccepted() != step.accepted || reply.GetFinal() != step.final || reply.GetMember() != us.GetMember() {
			t.Errorf("%s: %v", step.name, reply)
		}
		f.crash()
		f.start() // every answer holds after a restart
	}
	checkAfterRevocation(t, f, good, request)
}

// checkAfterRevocation checks the answers of a founder that has refused some proposals
// finally, and revokes the one that it had accepted.
func checkAfterRevocation(t *testing.T, f *founder, good *wire.Proposal, request func(*wire.Proposal) *wire.FormReply) {
	t.Helper()
	with := func(cluster byte) *wire.Proposal {
		p := proto.CloneOf(good)
		p.Cluster = bytes.Repeat([]byte{cluster}, 16)
		return p
	}
	if err := f.revoke(good); err != nil {
		t.Fatal(err)
	}
	// It has no proposal now, and would accept any of these if it had not refused them,
	// or dropped the first, finally: others rely on that.
	for _, cluster := range []byte{1, 2, 3, 5, 6, 7, 8, 9} {
		reply := request(with(cluster))
		if reply.GetAccepted() || !reply.GetFinal() {
			t.Errorf("proposal %d, refused before: %v", cluster, reply)
		}
	}
	other := with(10)
	if reply := request(other); !reply.GetAccepted() {
		t.Errorf("another one after the drop: %v", reply)
	}
	if err := f.bootstrap(other); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*wire.Proposal{good, with(11)} {
		if reply := request(p); reply.GetAccepted() || !reply.GetFinal() {
			t.Errorf("a member of a group: %v", reply)
		}
	}
	if reply := request(other); !reply.GetAccepted() {
		t.Errorf("its own group: %v", reply)
	}
}

// A member remembers a limited number of refusals; those beyond it are not final.
func TestForm_RefusalsLimited(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	low, _ := strangers(f, 1)
	f.candidates.find(low[0])
	for i := range maxRefused + 10 {
		p := proposal(0, 1, low[0])
		p.Cluster[0], p.Cluster[1] = byte(i), 1
		reply := f.Answer(&wire.FormRequest{Proposal: p, Candidate: low[0]})
		if reply.GetAccepted() || reply.GetFinal() != (i < maxRefused) {
			t.Fatalf("refusal %d: %v", i, reply)
		}
	}
}

// A founder that proposes group after group, each of which another one refuses finally,
// does not make the identity grow without bound. The member can still accept and form.
func TestForm_RevocationsLimited(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	low, _ := strangers(f, 1)
	f.candidates.find(low[0])
	accept := func(n int) *wire.Proposal {
		p := proposal(0, 2, low[0], f.cfg.Meta())
		p.Cluster[0], p.Cluster[1] = byte(n), 1
		if reply := f.Answer(&wire.FormRequest{Proposal: p, Candidate: low[0]}); !reply.GetAccepted() {
			t.Fatalf("proposal %d: %v", n, reply)
		}
		return p
	}
	for n := range maxRefused + 10 {
		if err := f.revoke(accept(n)); err != nil {
			t.Fatal(err)
		}
		if record := f.cfg.Identity.Get(); record.GetAccepted() != nil || len(record.GetRefused()) != min(n+1, maxRefused) {
			t.Fatalf("after revocation %d: %d refusals, accepted %v", n+1, len(record.GetRefused()), record.GetAccepted())
		}
	}
	p := accept(maxRefused + 10)
	if err := f.bootstrap(p); err != nil || !bytes.Equal(f.cfg.Identity.Get().GetCluster(), p.GetCluster()) {
		t.Errorf("the next group: %v", err)
	}
}

// A stranger that proposes a group with founders that do not exist, or that it does not
// prove, uses up neither the acceptance nor a refusal: the founders form their group.
func TestForm_StrangerUsesUpNothing(t *testing.T) {
	v := newFounders(t, 1, 3, 3)
	for _, f := range v.founders {
		f.meets(true)
		low, high := strangers(f, 2)
		f.candidates.find(low[0])
		for i, p := range []*wire.Proposal{
			proposal(101, 3, low[0], f.cfg.Meta(), high[0]),
			proposal(102, 3, low[1], f.cfg.Meta(), high[0]),
			proposal(103, 2, low[0], high[0]),
		} {
			before := f.cfg.Identity.Get()
			reply := f.Answer(&wire.FormRequest{Proposal: p, Candidate: low[0]})
			if reply.GetAccepted() || reply.GetFinal() || f.cfg.Identity.Get() != before {
				t.Errorf("proposal %d of a stranger: %v", i, reply)
			}
		}
	}
	v.settle()
	if v.ungrouped() > 0 {
		t.Errorf("%d founders without a group", v.ungrouped())
	}
}

// Founders with different Voters form no group, and each names both sides.
func TestForming_ContradictingVoters(t *testing.T) {
	v := newFounders(t, 1, 3, 3)
	v.founders[2].cfg.Voters = 5
	for range 3 {
		for _, f := range v.founders {
			f.meets(true)
			f.attempt()
		}
	}
	if v.ungrouped() != 3 {
		t.Fatalf("%d founders without a group", v.ungrouped())
	}
	for i, want := range []string{
		"founder-2) expects 5 voters, this member 3", "founder-2) expects 5 voters, this member 3", "founder-0) expects 3 voters, this member 5",
	} {
		if why := v.founders[i].waitReason(); !strings.Contains(why.Error(), want) {
			t.Errorf("founder %d: %v, want %q", i, why, want)
		}
	}
	f := v.founders[0]
	p := proposal(1, 2, f.cfg.Meta())
	p.Founders = append(p.Founders, p.Founders[0], p.Founders[0])
	if reply := f.Answer(&wire.FormRequest{Proposal: p, Candidate: f.cfg.Meta()}); !strings.Contains(reply.GetRefusal(), "the proposal has 2 voters, this member expects 3") {
		t.Errorf("the proposal is answered by %v", reply)
	}
}

// A process that has found a member of a group neither proposes another group nor accepts
// one, also when it does not find that member any more, and after a restart.
func TestForming_SeenGroup(t *testing.T) {
	v := newFounders(t, 1, 2, 2)
	seen, other := v.founders[0], v.founders[1]
	if seen.cfg.Identity.Member > other.cfg.Identity.Member {
		seen, other = other, seen // the one with the lower ID proposes
	}
	if err := seen.noteSeen(bytes.Repeat([]byte{7}, 16)); err != nil {
		t.Fatal(err)
	}
	seen.crash()
	seen.start()
	for _, f := range v.founders {
		f.meets(true)
	}
	if p := seen.propose(); p != nil {
		t.Errorf("proposes %v", p)
	}
	p := proposal(9, 2, seen.cfg.Meta(), other.cfg.Meta())
	if reply := seen.answer(seen.cfg.Identity.Member, seen.cfg.Identity.Public(), p); reply.GetAccepted() || !reply.GetFinal() {
		t.Errorf("answers %v", reply)
	}
	if why := seen.waitReason(); !strings.Contains(why.Error(), "it has found a group before") {
		t.Errorf("waits for %v", why)
	}
}

// Members of two groups of one name are found: the process joins neither, and says so.
func TestForming_TwoGroups(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	low, high := strangers(f, 1)
	low[0].Cluster, high[0].Cluster = bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	f.candidates.find(low[0])
	f.candidates.find(high[0])
	if joined, err := f.joinGroup(t.Context()); joined || err != nil || len(f.cfg.Identity.Get().GetSeen()) > 0 {
		t.Errorf("joined %v, %v", joined, err)
	}
	if why := f.waitReason(); !errors.Is(why, ErrTwoGroups) {
		t.Errorf("waits for %v", why)
	}
}

// A founder that has accepted joins the group when one of the founders belongs to it, also
// if another one never answers again: all have accepted then.
func TestForming_OneFounderNeverReturns(t *testing.T) {
	v := newFounders(t, 1, 1, 3)
	f := v.founders[0]
	low, high := strangers(f, 1)
	p := proposal(3, 3, low[0], f.cfg.Meta(), high[0])
	f.candidates.find(low[0])
	f.candidates.find(high[0])
	if reply := f.answer(low[0].GetMember(), low[0].GetKey(), p); !reply.GetAccepted() {
		t.Fatal(reply)
	}
	low[0].Cluster = p.GetCluster()
	f.candidates.find(low[0])
	if formed, err := f.form(t.Context()); !formed || err != nil || !bytes.Equal(f.cfg.Identity.Get().GetCluster(), p.GetCluster()) {
		t.Errorf("formed %v, %v", formed, err)
	}
}
