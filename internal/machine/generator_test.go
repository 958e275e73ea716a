package machine

import (
	"bytes"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// generator makes logs that are random and yet get somewhere: it looks at the
// reference to name locks, holds and tickets that exist.
type generator struct {
	rand  *rand.Rand
	made  int // commands
	time  int64
	boots map[uint64]uint64
	group [3]uint64 // members; a removed one is replaced
	last  uint64    // member that was made up
	seqs  map[wire.ID]uint64
	calls map[wire.ID][]*wire.Call // made before, to be sent again
	ids   []wire.ID                // of incarnations, the living and the dead

	clients uint64 // that were made up
	jobs    bool   // commands of jobs are among them
	shards  bool   // commands of shards are among them
	groups  bool   // commands of further groups are among them

	oftenEvery bool // runs with short periods are among them

	mix func(r *reference.Model, inc wire.ID) *wire.Command // instead of command; may be nil
}

func newGenerator(seed uint64) *generator {
	return &generator{
		rand: newRand(seed), boots: map[uint64]uint64{}, group: [3]uint64{1, 2, 3}, last: 3,
		seqs: map[wire.ID]uint64{}, calls: map[wire.ID][]*wire.Call{},
	}
}

func (g *generator) chance(percent int) bool { return g.rand.IntN(100) < percent }

// entry makes the data of one entry.
func (g *generator) entry(r *reference.Model) []byte {
	switch {
	case g.chance(1):
		return nil
	case g.chance(1):
		return []byte{0xff, byte(g.rand.Uint32())}
	}
	b := &wire.Batch{Version: wire.BatchVersion, Time: g.step()}
	if g.chance(1) {
		b.Version++
	}
	for range g.rand.IntN(4) {
		b.Submissions = append(b.Submissions, g.submission(r))
	}
	return must(proto.Marshal(b))
}

// raised begins a log in which the group is at the highest level.
func (g *generator) raised() []byte {
	id := wire.ID{1, 1}
	g.boots[1]++
	g.ids = append(g.ids, id)
	return must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{{Member: 1, Incarnation: id[:], Calls: []*wire.Call{
		g.newCall(id, &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
			Member: 1, Boot: g.boots[1], Ttl: second, NextToken: []byte{15: 1 + byte(g.rand.IntN(3))}, FeatureLevel: wire.FeatureLevel,
		}}}),
		g.newCall(id, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: wire.FeatureLevel}}}),
	}}}}))
}

// step lets time go on, mostly by little, sometimes backwards.
func (g *generator) step() int64 {
	switch {
	case g.mix != nil && g.chance(70): // queues grow meanwhile
	case g.chance(50):
		g.time += g.rand.Int64N(second / 4)
	case g.chance(5):
		g.time += g.rand.Int64N(5 * second)
	case g.chance(2): // a deadline exactly
		g.time += second - g.time%second
	case g.chance(5):
		return g.time / 2
	}
	return g.time
}

func (g *generator) submission(r *reference.Model) *wire.Submission {
	least := 2
	if r.Groups.Number > 0 { // no other member can register before it is followed
		least = 1
	}
	switch {
	case g.members(r) < least || g.chance(2):
		return g.registration(r)
	case g.chance(5):
		return g.clientRegistration(r)
	}
	inc := r.Incarnations[g.rand.IntN(len(r.Incarnations))]
	id, floor := inc.ID, inc.Floor
	switch {
	case g.chance(2): // one that is dead, perhaps
		id = g.ids[g.rand.IntN(len(g.ids))]
	case g.chance(30):
		floor = g.rand.Uint64N(g.seqs[id] + 1)
	}
	s := &wire.Submission{Member: inc.Member, Incarnation: id[:], Floor: floor, Client: inc.Client}
	if live := r.Incarnation(id); live != nil && id != inc.ID {
		s.Member, s.Client = live.Member, live.Client
	}
	switch g.rand.IntN(50) { // it lies, mostly
	case 0:
		s.Member = 1 + g.rand.Uint64N(4)
	case 1:
		s.Client = !s.Client
	}
	for range 1 + g.rand.IntN(3) {
		s.Calls = append(s.Calls, g.call(r, id))
	}
	return s
}

// member is one of the group, or sometimes one that may have left.
func (g *generator) member(r *reference.Model) uint64 {
	if g.chance(5) {
		return g.rand.Uint64N(g.last + 2)
	}
	i := g.rand.IntN(len(g.group))
	if m := r.Member(g.group[i]); m != nil && m.Removed {
		g.last++
		g.group[i] = g.last
	}
	return g.group[i]
}

func (g *generator) registration(r *reference.Model) *wire.Submission {
	member := g.member(r)
	if !g.chance(10) {
		g.boots[member]++
	}
	var id wire.ID
	if len(g.ids) > 0 && g.chance(5) {
		id = g.ids[g.rand.IntN(len(g.ids))]
	} else {
		id = wire.ID{byte(g.rand.Uint32()), 1, byte(len(g.ids)), byte(len(g.ids) >> 8)}
		g.ids = append(g.ids, id)
	}
	ttl := (1 + g.rand.Int64N(4)) * second
	if g.chance(30) { // it can be declared dead before it expires
		ttl += MinSilence
	}
	if g.chance(5) {
		ttl = g.rand.Int64()
	}
	c := g.newCall(id, &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member: member, Boot: g.boots[member], Attempt: g.rand.Uint32N(2), Ttl: ttl,
		Tokens: g.tokens(), NextToken: g.token(), Key: g.key(member), FeatureLevel: g.level(r),
		Name: g.label(), Advertise: g.label(), Ephemeral: g.chance(50), Voters: g.rand.Uint32N(4),
	}}})
	s := &wire.Submission{Member: member, Incarnation: id[:], Calls: []*wire.Call{c}}
	if g.chance(3) {
		s.Member++
	}
	if g.chance(20) {
		s.Floor = g.rand.Uint64N(c.Seq + 1)
	}
	return s
}

// admit admits a member that the group has or may get.
func (g *generator) admit(r *reference.Model) *wire.Command {
	member := g.member(r)
	if g.chance(50) {
		member = g.last + 1 + g.rand.Uint64N(3)
	}
	key := bytes.Repeat([]byte{byte(member), 0}, 16)
	if g.chance(5) {
		key = g.key(member)
	}
	return &wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{
		Member: member, Key: key, Name: g.label(), Advertise: g.label(), Ephemeral: g.chance(50),
	}}}
}

func (g *generator) groupConfig() *wire.Command {
	delay := func() int64 {
		return []int64{0, MinReplaceAfter, 6 * second, 20 * second, 1, MaxReplaceAfter + 1, -1}[g.rand.IntN(7)]
	}
	return &wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{
		Voters: g.rand.Uint32N(9), ReplaceAfter: delay(), RemoveAfter: delay(),
	}}}
}

// label is a member's name or address.
func (g *generator) label() string {
	if g.chance(2) {
		return strings.Repeat("l", maxAdvertise-1+g.rand.IntN(3))
	}
	return string(rune('a' + g.rand.IntN(3)))
}

// level is mostly one that the group can live with.
func (g *generator) level(r *reference.Model) uint32 {
	if g.chance(95) {
		return r.Level + uint32(g.rand.IntN(2))
	}
	return uint32(g.rand.IntN(4))
}

// token is one of few, so that most registrations present that of the last.
func (g *generator) token() []byte {
	if g.chance(1) {
		return nil
	}
	return []byte{15: byte(g.rand.IntN(4))} // 0: none
}

func (g *generator) tokens() (tokens [][]byte) {
	for range g.rand.IntN(6) {
		tokens = append(tokens, g.token())
	}
	return tokens
}

func (g *generator) key(member uint64) []byte {
	if g.chance(95) {
		return nil
	}
	return bytes.Repeat([]byte{byte(member), byte(g.rand.IntN(20) / 19)}, 16)
}

func (g *generator) call(r *reference.Model, id wire.ID) *wire.Call {
	if old := g.calls[id]; len(old) > 0 && g.chance(10) {
		return old[len(old)-1-g.rand.IntN(min(len(old), 10))]
	}
	if g.mix != nil {
		return g.newCall(id, g.mix(r, id))
	}
	return g.newCall(id, g.command(r, id))
}

func (g *generator) newCall(id wire.ID, c *wire.Command) *wire.Call {
	g.made++
	g.seqs[id]++
	seq := g.seqs[id]
	switch {
	case g.chance(3): // leave a gap
		g.seqs[id] += g.rand.Uint64N(40)
	case g.mix == nil && g.chance(1): // all calls before it are refused then
		seq += g.rand.Uint64N(2 * MaxInFlight)
	}
	call := &wire.Call{Seq: seq, Command: must(proto.Marshal(c))}
	if g.chance(1) {
		call.Command = []byte{0x0a, 0xff}
	}
	g.calls[id] = append(g.calls[id], call)
	return call
}

// session names one that lives, mostly.
func (g *generator) session(r *reference.Model) []byte {
	if len(r.Sessions) == 0 || g.chance(2) {
		return g.newID()
	}
	id := r.Sessions[g.rand.IntN(len(r.Sessions))].ID
	return id[:]
}

func (g *generator) newID() []byte {
	return []byte{byte(g.rand.Uint32()), 2, byte(g.rand.Uint32()), 15: byte(g.rand.Uint32())}
}

func (g *generator) name() string {
	if g.chance(2) {
		return []string{"", strings.Repeat("x", MaxName), strings.Repeat("x", MaxName+1), "a\x00b", "ü"}[g.rand.IntN(5)]
	}
	return string(rune('a' + g.rand.IntN(4)))
}

func (g *generator) handleLabel() []byte {
	if g.chance(5) {
		return []byte([]string{strings.Repeat("x", MaxLabel), strings.Repeat("x", MaxLabel+1), "a\x00b", "\xff"}[g.rand.IntN(4)])
	}
	return []byte([]string{"run 1", "run 2", "ü"}[g.rand.IntN(3)])
}

func (g *generator) trace() []byte {
	if g.chance(50) {
		return nil
	}
	return bytes.Repeat([]byte{byte(g.rand.IntN(256))}, 1+g.rand.IntN(MaxTrace+4))
}

// value is one of few, so that some change nothing.
func (g *generator) value(limit int) []byte {
	if g.rand.IntN(20_000) == 0 {
		return make([]byte, limit+g.rand.IntN(2))
	}
	return []byte{"abc"[g.rand.IntN(3)]}[:g.rand.IntN(2)]
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newRand makes a seed's source of randomness.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
