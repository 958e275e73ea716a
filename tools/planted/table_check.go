package main

// checkBugs are in what ends sessions before their time: gossip and checks.
func checkBugs() []bug {
	return []bug{{
		name: "cut-off-leader-believes-gossip",
		what: "a leader that was cut off reports dead whom its gossip has not found again (a bug we had)",
		file: "gossipcheck.go",
		old:  "	if g.astray && majority || confirmed >= g.node.cfg.ElectionTimeout {\n		g.mended = now\n	}\n",
		new:  "",
		test: test{".", "TestGossipIsNotBelievedAfterACut", nil},
	}, {
		name: "rumour-believed",
		what: "a death that gossip shows counts also of who is still heard (a bug we had)",
		file: "cluster/alive.go",
		old:  "			p.Dead = p.Dead && !m.linked.has(id)\n",
		new:  "",
		test: test{"./cluster", "TestWhoIsHeardIsNotDead", nil},
	}, {
		name: "presence-not-noticed",
		what: "the leader does not hear that gossip has seen a process die or come",
		file: "conclave.go",
		old:  "PresenceChanged: n.gossip.wake,",
		new:  "PresenceChanged: func() {},",
		test: test{".", "TestBubbleGossip", nil},
	}, {
		name: "suspicion-too-short",
		what: "gossip declares dead who is only slow",
		file: "cluster/gossip.go",
		old:  "	cfg.AwarenessMaxMultiplier = 1\n",
		new:  "	cfg.AwarenessMaxMultiplier = 1\n	cfg.SuspicionMult = 1\n",
		test: test{".", "TestBubbleGossip", nil},
	}, {
		name: "deaths-not-remembered",
		what: "what gossip has seen die is forgotten, and the leader waits as for one never seen",
		file: "cluster/presence.go",
		old:  "	m.parted.add(meta.GetMember(), meta.GetBoot())\n",
		new:  "",
		test: test{".", "TestBubbleGossip", nil},
	}, {
		name: "gossip-ends-all-of-member",
		what: "a death ends the process's sessions that do not depend on gossip too",
		file: "internal/machine/check.go",
		old:  "&& slices.Contains(s.checks, c.name)",
		new:  "&& (c.name == gossipCheck || slices.Contains(s.checks, c.name))",
		test: test{".", "TestBubbleGossip", nil},
	}, {
		name: "no-delay-after-gossip",
		what: "no lock-delay follows a session that gossip's check has ended",
		file: "internal/machine/check.go",
		old:  "name: gossipCheck}), invalidated,",
		new:  "name: gossipCheck}), graceful,",
		test: test{".", "TestBubbleGossip", nil},
	}, {
		name: "alive-not-reported",
		what: "a process that is back stays critical",
		file: "gossipcheck.go",
		old:  "v.Silent == p.Alive {",
		new:  "!v.Silent && !p.Alive {",
		test: test{".", "TestBubbleGossip", nil},
	}, {
		name: "check-deadline-not-proposed",
		what: "a leader with nothing else to do does not let checks fall due",
		file: "internal/machine/clock.go",
		old:  "	if len(m.checkups) > 0 {\n		at, ok = min(at, m.checkups[0].deadline()), true\n	}\n",
		new:  "",
		test: test{".", "TestBubbleCheck", nil},
	}, {
		name: "warn-is-no-refresh",
		what: "a check that says warning becomes critical by its TTL all the same",
		file: "internal/machine/check.go",
		old:  "	known.status, known.refreshed = c.State, m.now\n",
		new:  "	known.status = c.State\n	if c.State == wire.CheckState_PASSING {\n		known.refreshed = m.now\n	}\n",
		test: test{".", "TestBubbleCheck", nil},
	}, {
		name: "no-delay-after-dropped-check",
		what: "no lock-delay follows a session whose check was deregistered",
		file: "internal/machine/check.go",
		old:  "	m.forgetCheck(known)\n	m.endSessions(m.dependents(known), invalidated,",
		new:  "	m.forgetCheck(known)\n	m.endSessions(m.dependents(known), graceful,",
		test: test{".", "TestBubbleCheck", nil},
	}, {
		name: "check-ends-all-of-member",
		what: "a check ends its member's sessions that depend on others too",
		file: "internal/machine/check.go",
		old:  "if slices.ContainsFunc(checks, at.of.dependsOn) {",
		new:  "if len(at.of.checks) > 0 {",
		test: test{".", "TestBubbleCheck", nil},
	}}
}
