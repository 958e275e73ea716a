package examples

import "testing"

func TestSemaphoreRecipe_HolderCrashesAndSlotRevoked(t *testing.T) {
	t.Parallel()
	p := start(t, "semaphorerecipe", nil, "semaphorerecipe")
	for _, line := range []string{
		`has formed`,
		`anna +contends`,
		`ben +contends`,
		`clara +contends`,
		`anna +holds a slot: 1 of 2`,
		`ben +holds a slot: 2 of 2`,
		`clara +waits: 2 of 2`,
		`anna +is killed`,
		`clara +leaves out a holder without a contender key`,
		`clara +holds a slot: 2 of 2`,
		`operator +revokes ben's slot`,
		`ben +sees that its slot is revoked`,
		`ben +holds a slot: 2 of 2`,
		`ben +releases its slot`,
		`clara +releases its slot`,
		`1 key left, .*: {"Limit":2,"Holders":{}}`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}
