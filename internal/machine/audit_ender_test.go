package machine

// ender checks that a reader of the keys knows whether the session has ended.
func (a *auditor) ender(s *session) {
	by, listed := a.m.keys.enders.Get(ender{id: s.id})
	if listed && (!s.dead() || by.behavior != s.behavior) || !listed && s.dead() && s.locked() > 0 {
		a.fail("session %s is among those that release keys: %t", s.id, listed)
	}
}
