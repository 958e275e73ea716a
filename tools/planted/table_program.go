package main

// programBugs are in what a program holds: sessions, handles, watches.
func programBugs() []bug {
	return []bug{{
		name: "renewal-counts-from-reply",
		what: "a session is trusted from when its renewal was answered, not sent",
		file: "renewal.go",
		old:  "			s.renewed(sent)\n",
		new:  "			s.renewed(r.node.clock.now())\n",
		test: test{".", "TestTheDeadlineCountsFromTheSending", nil},
	}, {
		name: "opening-counts-from-reply",
		what: "a session is trusted from when its opening was answered, not sent",
		file: "newsession.go",
		old:  "	s := newSession(o.node, o.id, a.incarnation, o.cfg.TTL, o.sent)\n",
		new:  "	s := newSession(o.node, o.id, a.incarnation, o.cfg.TTL, o.node.clock.now())\n",
		test: test{".", "TestTheDeadlineCountsFromTheSending", nil},
	}, {
		name: "deadline-without-margin",
		what: "a holder trusts its session for the whole TTL",
		file: "session.go",
		old:  "return ttl - ttl/100 }",
		new:  "return ttl }",
		test: test{".", "TestTheDeadlineCountsFromTheSending", nil},
	}, {
		name: "lost-not-closed",
		what: "Lost stays open when the session ends",
		file: "session.go",
		old:  "		close(h.lost)\n",
		new:  "		_ = h.lost\n",
		test: test{".", "TestLostIsClosedWithTheSession", nil},
	}, {
		name: "fence-of-lost-hold",
		what: "Fence returns the fence of a hold that is lost",
		file: "lock.go",
		old:  "	case l.hold.isLost():\n		return 0, ErrLockOwnershipLost\n",
		new:  "",
		test: test{".", "TestLossIsToldUntilEveryHoldIsGivenBack", nil},
	}, {
		name: "clock-not-looked-at",
		what: "a session past its deadline counts as alive until a timer runs",
		file: "session.go",
		old:  "	expired := s.err == nil && s.node.clock.now() >= s.deadline\n",
		new:  "	expired := false\n",
		test: test{".", "TestAHolderLooksAtTheClockItself", nil},
	}, {
		name: "withdrawal-forgotten",
		what: "a Lock whose context ends stays in the queue",
		file: "acquisition.go",
		old:  "	case queued:\n		a.phase = withdrawn\n		a.withdraw()\n",
		new:  "	case queued:\n		a.phase = withdrawn\n",
		test: test{".", "TestContextEndsWhileWaiting", nil},
	}, {
		name: "grant-after-leaving-kept",
		what: "a grant that comes when the caller has gone is not given back",
		file: "acquisition.go",
		old:  "		} else if refusal(r) == nil {\n			a.giveBack(Fence(r.GetFence()))\n		}\n",
		new:  "		}\n",
		test: test{".", "TestAGrantAfterItsCallerHasLeft", nil},
	}, {
		name: "release-bound-to-context",
		what: "an Unlock whose context has ended releases nothing",
		file: "hold.go",
		old:  "	answered := make(chan answer, 1)\n	h.session",
		new:  "	answered := make(chan answer, 1)\n	if ctx.Err() != nil {\n		return ctx.Err()\n	}\n	h.session",
		test: test{".", "TestUnlockIsPursuedWithoutItsContext", nil},
	}, {
		name: "watch-merges",
		what: "of several changes of a key in one entry a watch shows the last",
		file: "feed.go",
		old:  "	for _, c := range keys {\n		f.keys.add(c.Index, c)\n",
		new:  "	for i, c := range keys {\n		if i+1 < len(keys) && keys[i+1].Entry.Key == c.Entry.Key {\n			continue\n		}\n		f.keys.add(c.Index, c)\n",
		test: test{".", "TestAWatchShowsEachChangeOfAnEntry", nil},
	}, {
		name: "gap-not-told",
		what: "a watch that has missed changes goes on as if it had not",
		file: "feed.go",
		old:  "	if after < f.floor {",
		new:  "	if after < f.floor && len(f.items) == 0 {",
		test: test{".", "TestFeedForgetsTheOldest", nil},
	}, {
		name: "watch-across-snapshot",
		what: "watchers are not told that a snapshot has skipped changes",
		file: "feed.go",
		old:  "	f.keys.restart(state.(*machine.Machine).Changes())\n",
		new:  "	_ = state.(*machine.Machine).Changes()\n",
		test: test{".", "TestASnapshotCompactsWatches", nil},
	}, {
		name: "guard-takes-smaller",
		what: "a Guard takes any fence that it has seen before",
		file: "fence.go",
		old:  "f < largest {",
		new:  "f+1 < largest {",
		test: test{".", "TestGuard", nil},
	}}
}
