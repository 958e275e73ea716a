package examples

import "testing"

// The recipe's story is told to its end, in order.
func TestSemaphoreRecipe(t *testing.T) {
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
		`clara +finds a holder that is no contender any more`,
		`clara +holds a slot: 2 of 2`,
		`operator +takes ben's slot away`,
		`ben +sees that the slot is not his any more`,
		`ben +holds a slot: 2 of 2`,
		`ben +gives the slot back`,
		`clara +gives the slot back`,
		`nothing else: {"Limit":2,"Holders":{}}`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
