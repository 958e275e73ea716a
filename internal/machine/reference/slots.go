package reference

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// The numbers of permits.

// formerSlot is a number that no session has, with the name of the one that had it last.
type formerSlot struct {
	of      *Semaphore
	session string
	number  uint32
}

func (f formerSlot) size() int { return 64 + len(f.session) }

// sessionName returns the name of a session that lives, or has something that is not released yet.
func sessionName(r *Model, id wire.ID) string {
	if d := r.lateSession(id); d != nil {
		return d.s.name
	}
	return r.session(id[:]).name
}

// number chooses the numbers for a request that is granted.
func (s *Semaphore) number(r *Model, p Place) []uint32 {
	if atLeast(r.Level) < wire.LevelSlots || p.Permits > MaxSlots {
		return nil
	}
	used := map[uint32]bool{}
	for _, held := range s.Permits {
		for _, n := range held.Slots {
			used[n] = true
		}
	}
	var numbers []uint32
	name := sessionName(r, p.Session)
	for _, f := range r.former {
		if f.of == s && name != "" && f.session == name && !used[f.number] && f.number < s.Limit {
			numbers = append(numbers, f.number)
		}
	}
	slices.Sort(numbers)
	numbers = numbers[:min(len(numbers), int(p.Permits))]
	for n := uint32(0); len(numbers) < int(p.Permits); n++ {
		if !used[n] && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	r.former = slices.DeleteFunc(r.former, func(f formerSlot) bool { return f.of == s && slices.Contains(numbers, f.number) })
	return numbers
}

// remember remembers the session that had the numbers of permits, which are released or delayed.
func (s *Semaphore) remember(r *Model, p Permit) {
	name := sessionName(r, p.Session)
	if name == "" {
		return
	}
	for _, n := range slices.Backward(p.Slots) {
		r.former = append(r.former, formerSlot{s, name, n})
		count := func() (each, bytes int) {
			for _, f := range r.former {
				if bytes += f.size(); f.of == s {
					each++
				}
			}
			return each, bytes
		}
		if each, _ := count(); each > cmp.Or(r.MostFormer, MaxFormer) {
			i := slices.IndexFunc(r.former, func(f formerSlot) bool { return f.of == s })
			r.former = slices.Delete(r.former, i, i+1)
		}
		for _, bytes := count(); bytes > cmp.Or(r.MostFormerBytes, MaxFormerBytes); _, bytes = count() {
			r.former = r.former[1:]
		}
	}
}
