package cluster

import "sync"

// Presence is what gossip says of a member of the group. Neither Alive nor Dead:
// it has not shown the member since this process started.
type Presence struct {
	Member uint64
	Boot   uint64 // the latest start that is alive, or else the latest that is dead
	Alive  bool   // one of its starts answers
	Dead   bool   // the last of its starts that answered was declared dead, or has left
}

// Presence tells it of every member of the group, this one included. It never
// blocks, and it is no authority.
func (m *Member) Presence() []Presence {
	alive := map[uint64]uint64{m.identity.member: m.identity.get().GetBoot()}
	for _, meta := range m.gossip.alive() {
		if m.isPeer(meta) {
			alive[meta.GetMember()] = meta.GetBoot() // by start: the latest comes last
		}
	}
	var list []Presence
	for _, id := range m.members.all() {
		p := Presence{Member: id}
		if p.Boot, p.Alive = alive[id]; !p.Alive {
			p.Boot, p.Dead = m.parted.last(id)
		}
		list = append(list, p)
	}
	return list
}

// parted remembers which starts of the group's members gossip has shown to end.
type parted struct {
	mu    sync.Mutex
	boots map[uint64]uint64 // guarded by mu; the latest, by member
}

func (p *parted) add(member, boot uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boots == nil {
		p.boots = make(map[uint64]uint64)
	}
	p.boots[member] = max(p.boots[member], boot)
}

func (p *parted) last(member uint64) (boot uint64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	boot, known = p.boots[member]
	return boot, known
}
