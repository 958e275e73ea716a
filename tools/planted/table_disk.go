package main

// diskBugs are in what a member keeps: the log, the hard state, the watermark.
func diskBugs() []bug {
	return []bug{{
		name: "log-not-synced",
		what: "entries are written without a sync",
		file: "raftlog/write.go",
		old:  "	w.sync = true\n	if stale <= previous.index {",
		new:  "	if stale <= previous.index {",
		test: test{"./raftlog", "TestPowerCutAnywhere", nil},
	}, {
		name: "vote-not-synced",
		what: "a vote in a term that is known already is not durable before it is given",
		file: "raftlog/write.go",
		old:  "if hard.GetTerm() != term || hard.GetVote() != vote {",
		new:  "if hard.GetTerm() != term {",
		test: test{"./raftlog", "TestAVoteIsDurable", nil},
	}, {
		name: "stale-suffix-kept",
		what: "entries that a new leader's replace stay behind them on disk",
		file: "raftlog/write.go",
		old:  "	return w.batch.DeleteRange(w.group.entry(previous.index+1), w.group.entry(stale+1), nil)",
		new:  "	return nil",
		test: test{"./raftlog", "TestALogIsFoundAgainAsItWas", nil},
	}, {
		name: "applied-not-with-state",
		what: "the applied index is not written with the state that it belongs to",
		file: "raftlog/write.go",
		old:  "	w.applied = a\n",
		new:  "	w.applied = a\n	if !w.sync {\n		return nil\n	}\n",
		test: test{"./raftlog", "TestPowerCutAnywhere", nil},
	}, {
		name: "snapshot-not-synced",
		what: "the switch to a snapshot is not durable",
		file: "raftlog/install.go",
		old:  "	w.sync, w.vow = true, true\n",
		new:  "",
		test: test{"./raftlog", "TestAnInstalledSnapshotIsDurable", nil},
	}, {
		name: "old-log-behind-snapshot",
		what: "the log from before a snapshot stays",
		file: "raftlog/install.go",
		old:  "	if err := w.batch.DeleteRange(entries, after(entries), nil); err != nil {\n		return err\n	}\n",
		new:  "	_ = after(entries)\n",
		test: test{"./raftlog", "TestASnapshotReplacesLogAndState", nil},
	}, {
		name: "watermark-ignored",
		what: "a member whose log is shorter than it acknowledged opens all the same",
		file: "raftlog/watermark.go",
		old:  "	if shown >= w.count {",
		new:  "	if shown >= w.count || shown > 0 {",
		test: test{"./raftlog", "TestAMemberThatForgotDoesNotOpen", nil},
	}, {
		name: "chain-unchecked",
		what: "entries are not compared with their checksums",
		file: "raftlog/open.go",
		old:  "		if previous.chain != chain {",
		new:  "		if false && previous.chain != chain {",
		test: test{"./raftlog", "TestAnEntryOfAnotherLogIsNoticed", nil},
	}, {
		name: "disk-error-trusted",
		what: "a result is passed on although a write under it has failed",
		file: "storage/work.go",
		old:  "	err := fn(s.db)\n	if s.guard.error() != nil {\n		return\n	}\n",
		new:  "	err := fn(s.db)\n",
		test: test{"./storage", "TestNoResultIsTrustedAfterAFailure", nil},
	}, {
		name: "boot-not-counted",
		what: "a start of the member does not raise its boot counter",
		file: "cluster/identity.go",
		old:  "func(r *wire.Identity) { r.Boot++ }",
		new:  "func(*wire.Identity) {}",
		test: test{"./cluster", "TestIdentityCountsEachStart", nil},
	}, {
		name: "stages-not-removed",
		what: "what is left of a snapshot that was not installed stays on the disk",
		file: "raftlog/open.go",
		old:  "len(unused) == 0 {",
		new:  "len(unused) >= 0 {",
		test: test{".", "TestPowerCutWhileASnapshotIsInstalled", nil},
	}, {
		name: "generation-not-switched",
		what: "the state on the disk stays that from before the snapshot, of which nothing is left",
		file: "raftlog/install.go",
		old:  "	return w.batch.Set(w.group.key(kindGeneration), encodeNumbers(generation), nil)",
		new:  "	return nil",
		test: test{".", "TestPowerCutWhileASnapshotIsInstalled", nil},
	}}
}
