package machine

import (
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// generator makes logs that are random and yet get somewhere: it looks at the
// reference to name locks, holds and tickets that exist.
type generator struct {
	rand  *rand.Rand
	made  int // commands
	time  int64
	boots map[uint64]uint64
	seqs  map[wire.ID]uint64
	calls map[wire.ID][]*wire.Call // made before, to be sent again
	ids   []wire.ID                // of incarnations, the living and the dead
}

func newGenerator(seed uint64) *generator {
	return &generator{
		rand: newRand(seed), boots: map[uint64]uint64{},
		seqs: map[wire.ID]uint64{}, calls: map[wire.ID][]*wire.Call{},
	}
}

func (g *generator) chance(percent int) bool { return g.rand.IntN(100) < percent }

// entry makes the data of one entry.
func (g *generator) entry(r *reference) []byte {
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

// step lets time go on, mostly by little, sometimes backwards.
func (g *generator) step() int64 {
	switch {
	case g.chance(50):
		g.time += g.rand.Int64N(second / 4)
	case g.chance(5):
		g.time += g.rand.Int64N(5 * second)
	case g.chance(5):
		return g.time / 2
	}
	return g.time
}

func (g *generator) submission(r *reference) *wire.Submission {
	if len(r.incs) < 2 || g.chance(2) {
		return g.registration()
	}
	inc := r.incs[g.rand.IntN(len(r.incs))]
	id, floor := inc.id, inc.floor
	switch {
	case g.chance(2): // one that is dead, perhaps
		id = g.ids[g.rand.IntN(len(g.ids))]
	case g.chance(30):
		floor = g.rand.Uint64N(g.seqs[id] + 1)
	}
	s := &wire.Submission{Incarnation: id[:], Floor: floor}
	for range 1 + g.rand.IntN(3) {
		s.Calls = append(s.Calls, g.call(r, id))
	}
	return s
}

func (g *generator) registration() *wire.Submission {
	member := 1 + g.rand.Uint64N(3)
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
	if g.chance(5) {
		ttl = g.rand.Int64()
	}
	c := g.newCall(id, &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member: member, Boot: g.boots[member], Attempt: g.rand.Uint32N(2), Ttl: ttl,
	}}})
	s := &wire.Submission{Incarnation: id[:], Calls: []*wire.Call{c}}
	if g.chance(20) {
		s.Floor = g.rand.Uint64N(c.Seq + 1)
	}
	return s
}

func (g *generator) call(r *reference, id wire.ID) *wire.Call {
	if old := g.calls[id]; len(old) > 0 && g.chance(10) {
		return old[len(old)-1-g.rand.IntN(min(len(old), 10))]
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
	case g.chance(1):
		seq += g.rand.Uint64N(2 * MaxInFlight)
	}
	call := &wire.Call{Seq: seq, Command: must(proto.Marshal(c))}
	if g.chance(1) {
		call.Command = []byte{0x0a, 0xff}
	}
	g.calls[id] = append(g.calls[id], call)
	return call
}

func (g *generator) command(r *reference, inc wire.ID) *wire.Command {
	switch n := g.rand.IntN(100); {
	case n < 8:
		return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
	case n < 9:
		return &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}}
	case n < 19:
		return g.openSession(r)
	case n < 23:
		id := g.session(r)
		return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: id, Graceful: g.chance(50)}}}
	case n < 60:
		return g.lock(r)
	case n < 88:
		return g.unlock(r)
	}
	return g.withdraw(r, inc)
}

func (g *generator) openSession(r *reference) *wire.Command {
	c := &wire.OpenSession{
		Id: g.newID(), Name: "s", Ttl: (1 + g.rand.Int64N(3)) * second,
		LockDelay: max(0, g.rand.Int64N(5)-2) * second,
	}
	switch g.rand.IntN(40) {
	case 0:
		c.Id = g.session(r)
	case 1:
		c.Ttl = g.rand.Int64() - math.MaxInt64/2
	case 2:
		c.LockDelay = g.rand.Int64() - math.MaxInt64/2
	case 3:
		c.Id = c.Id[:g.rand.IntN(16)]
	case 4:
		c.Name = g.name()
	}
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: c}}
}

func (g *generator) lock(r *reference) *wire.Command {
	c := &wire.Lock{
		Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Reentrant: g.chance(60),
		Limit: g.rand.Uint32N(4), Wait: g.chance(60),
	}
	if l := g.held(r); l != nil && g.chance(40) { // enter again
		c.Name, c.Session, c.Handle = l.name, l.owner.session[:], l.owner.handle
		if g.chance(70) {
			c.Fence = l.fence
		}
	}
	if g.chance(3) {
		c.Fence = g.rand.Uint64N(r.granted + 1)
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
}

func (g *generator) unlock(r *reference) *wire.Command {
	c := &wire.Unlock{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: r.granted}
	if l := g.held(r); l != nil && g.chance(90) {
		c.Name, c.Session, c.Handle, c.Fence = l.name, l.owner.session[:], l.owner.handle, l.fence
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: c}}
}

func (g *generator) withdraw(r *reference, inc wire.ID) *wire.Command {
	c := &wire.Withdraw{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Seq: g.rand.Uint64N(g.seqs[inc] + 2)}
	var own []refPlace
	var names []string
	for _, l := range r.locks {
		places := l.queue
		if l.owner != nil {
			places = append([]refPlace{*l.owner}, places...)
		}
		for _, p := range places {
			if p.ticket.Incarnation == inc {
				own, names = append(own, p), append(names, l.name)
			}
		}
	}
	if len(own) > 0 && g.chance(90) {
		i := g.rand.IntN(len(own))
		c.Name, c.Session, c.Handle, c.Seq = names[i], own[i].session[:], own[i].handle, own[i].ticket.Seq
	}
	return &wire.Command{Op: &wire.Command_Withdraw{Withdraw: c}}
}

func (g *generator) held(r *reference) *refLock {
	for range 3 {
		if len(r.locks) == 0 {
			return nil
		}
		if l := &r.locks[g.rand.IntN(len(r.locks))]; l.owner != nil {
			return l
		}
	}
	return nil
}

func (g *generator) session(r *reference) []byte {
	if len(r.sessions) == 0 || g.chance(2) {
		return g.newID()
	}
	id := r.sessions[g.rand.IntN(len(r.sessions))].id
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
