package roster

import (
	"slices"

	"github.com/conclave-go/conclave/internal/version"
)

// Build returns the version that a member's last process states; "": unknown.
func (s *Snapshot) Build(id uint64) string {
	if i := slices.IndexFunc(s.Members, func(m Member) bool { return m.ID == id }); i >= 0 {
		return s.Members[i].Build
	}
	return ""
}

// buildOf is called with mu held.
func (r *Roster) buildOf(id uint64) string {
	if id == r.self.GetMember() {
		return version.Stated(r.self.GetBuild())
	}
	if e := r.entries[id]; e != nil {
		return e.build
	}
	return ""
}
