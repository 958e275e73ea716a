package grouptest

// AwaitLevel blocks until each running member has applied the feature level.
func (g *Group) AwaitLevel(level uint32) {
	g.T.Helper()
	for _, i := range g.Running() {
		if !g.poll(patience, func() bool { return g.Member(i).Replica().Level() >= level }) {
			g.T.Fatalf("member %d is at level %d, want %d", i, g.Member(i).Replica().Level(), level)
		}
	}
}
