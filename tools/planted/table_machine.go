package main

// machineBugs are in what the log means: tickets, time, sessions, checks.
func machineBugs() []bug {
	return []bug{{
		name: "dedup-skipped",
		what: "a command that comes again is applied again",
		file: "internal/machine/ticket.go",
		old:  "stored := inc.window.get(t.Seq); stored != nil {",
		new:  "stored := inc.window.get(t.Seq); stored != nil && false {",
		test: script("tickets"),
	}, {
		name: "window-cut-too-early",
		what: "the machine forgets one outcome more than the member has received",
		file: "internal/machine/ticket.go",
		old:  "		m.raiseFloor(inc, s.Floor)\n",
		new:  "		m.raiseFloor(inc, s.Floor+1)\n",
		test: script("tickets"),
	}, {
		name: "grant-not-stored",
		what: "the retry of a Lock that was granted meanwhile is told that it waits",
		file: "internal/machine/ticket.go",
		old:  "	if w.incarnation.window.get(t.Seq) != nil {",
		new:  "	if w.incarnation.window.get(t.Seq) == nil {",
		test: script("tickets"),
	}, {
		name: "time-runs-back",
		what: "group time goes back with a batch of an earlier time",
		file: "internal/machine/clock.go",
		old:  "	m.now = max(m.now, time)\n",
		new:  "	m.now = time\n",
		test: script("expiry"),
	}, {
		name: "early-expiry",
		what: "a session's TTL counts from the renewal before it was opened",
		file: "internal/machine/session.go",
		old:  "	inc.bind(s)\n	m.renewed(inc)\n",
		new:  "	inc.bind(s)\n",
		test: script("expiry"),
	}, {
		name: "no-ttl-from-new-leader",
		what: "sessions do not get a full TTL from a new leader",
		file: "internal/machine/clock.go",
		old:  "	for _, inc := range m.incarnations {\n		m.renewed(inc)\n	}\n",
		new:  "",
		test: script("expiry"),
	}, {
		name: "no-check-ttl-from-new-leader",
		what: "checks do not get a full TTL from a new leader",
		file: "internal/machine/clock.go",
		old:  "	m.refreshChecks()\n",
		new:  "",
		test: script("check"),
	}, {
		name: "delays-before-ends",
		what: "a lock-delay that ends hands on to a session that ends in the same entry",
		file: "internal/machine/clock.go",
		old:  "	m.endSessions(due, invalidated, shortened)\n	m.endDelays()\n",
		new:  "	m.endDelays()\n	m.endSessions(due, invalidated, shortened)\n",
		test: script("together"),
	}, {
		name: "dead-waiter-granted",
		what: "what a session held goes to one that ends at the same moment",
		file: "internal/machine/ending.go",
		old:  "	}\n	for _, s := range ending {\n		m.handOn(s, s.delayAfter(how))\n	}\n",
		new:  "		m.handOn(s, s.delayAfter(how))\n	}\n",
		test: script("together"),
	}, {
		name: "gone-process-granted",
		what: "what a session held goes to a process that is forgotten at the same moment (a bug we had)",
		file: "internal/machine/clock.go",
		old:  "	for _, inc := range silent {\n		shortened = append(shortened, m.dropPlaces(inc)...)\n	}\n",
		new:  "",
		test: script("gone"),
	}, {
		name: "waiter-outlives-session",
		what: "the queue places of a session that ends stay",
		file: "internal/machine/ending.go",
		old:  "			m.dequeue(w)\n			m.settle(w, m.reply(wire.Code_SESSION_EXPIRED))\n",
		new:  "			s.waiters.remove(&w.inSession)\n",
		test: script("expiry"),
	}, {
		name: "delay-after-close",
		what: "a lock-delay follows a session that its owner has closed",
		file: "internal/machine/ending.go",
		old:  "	if how == graceful {",
		new:  "	if false && how == graceful {",
		test: script("delay"),
	}, {
		name: "stale-boot-registers",
		what: "a copied directory registers in the place of the original",
		file: "internal/machine/incarnation.go",
		old:  "	if known != nil && !known.precedes(c) {",
		new:  "	if known != nil && c.Boot < known.boot {",
		test: script("incarnation"),
	}, {
		name: "forgotten-comes-back",
		what: "an incarnation that was forgotten with its window is taken back",
		file: "internal/machine/incarnation.go",
		old:  "	if known != nil && known.incarnation == id {",
		new:  "	if false && known.incarnation == id {",
		test: script("incarnation"),
	}, {
		name: "left-comes-back",
		what: "a member that has left the group for good registers again",
		file: "internal/machine/incarnation.go",
		old:  "	if known != nil && known.left {",
		new:  "	if false && known.left {",
		test: script("leave"),
	}, {
		name: "former-leaders-gossip",
		what: "what a former leader has seen of a member counts",
		file: "internal/machine/check.go",
		old:  "c.Term != m.term || ",
		new:  "",
		test: script("gossip"),
	}, {
		name: "dropped-check-ends-nobody",
		what: "sessions outlive a check of theirs that is deregistered",
		file: "internal/machine/check.go",
		old:  "	m.forgetCheck(known)\n	m.endSessions(m.dependents(known), ",
		new:  "	m.forgetCheck(known)\n	m.endSessions(nil, ",
		test: script("check"),
	}, {
		name: "queue-order-by-map",
		what: "places are withdrawn in the order of a map",
		file: "internal/machine/queue.go",
		old:  "		return cmp.Compare(a.position, b.position)\n",
		new:  "		return cmp.Compare(0, 0)\n",
		test: test{"./internal/machine", "TestSameLogOtherWays", nil},
	}, {
		name: "queue-order-lost",
		what: "a queue that was loaded is in the order of handles, not of positions",
		file: "internal/machine/link.go",
		old:  "cmp.Compare(a.of.position, b.of.position)",
		new:  "cmp.Compare(a.of.handle, b.of.handle)",
		test: test{"./internal/machine", "TestSameLogOtherWays", nil},
	}}
}

// script is one of the scripts in internal/machine/testdata.
func script(name string) test {
	return test{"./internal/machine", "TestScripts/" + name, nil}
}
