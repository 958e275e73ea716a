package roster

// ReportNames reports the names of the members, this one included, and each that is recorded from now on. It is
// called before the roster is used; nil: ignored.
func (r *Roster) ReportNames(named func(member uint64, name string)) {
	if r.named = named; named == nil {
		return
	}
	named(r.self.GetMember(), r.self.GetName())
	for _, p := range r.Snapshot().Peers {
		named(p.GetMember(), p.GetName())
	}
}
