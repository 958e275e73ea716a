package cluster

import "sync"

// Presence is what gossip says of a member of the group. Neither Alive nor Dead:
// it has not shown the member since this process started, or somebody who was cut
// off has brought a rumour that the member has not refuted yet.
type Presence struct {
	Member uint64
	Boot   uint64 // the latest start that is alive, or else the latest that is dead
	Alive  bool   // one of its starts answers
	Dead   bool   // the last of its starts that answered was declared dead, or has left, and no connection of it shows the contrary
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
			p.Dead = p.Dead && !m.linked.has(id)
		}
		list = append(list, p)
	}
	return list
}

// linked are the members whose connection to this one is up: they give signs of
// life on it.
type linked struct {
	mu sync.Mutex
	up map[uint64]bool // guarded by mu
}

func (l *linked) set(member uint64, up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up == nil {
		l.up = make(map[uint64]bool)
	}
	l.up[member] = up
}

func (l *linked) has(member uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up[member]
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
