package examples

import "testing"

// Workers transfer in all directions, and the sum stays, while they work and at the end.
func TestTransfer_SumStays(t *testing.T) {
	t.Parallel()
	p := start(t, "transfer", nil, "transfer")
	for _, line := range []string{
		`formed a group; 8 accounts have 800 together$`,
		`an audit beside 6 workers finds 800$`,
		`an audit beside 6 workers finds 800$`,
		`an audit beside 6 workers finds 800$`,
		`^after 240 transfers the accounts have 800 together$`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}
