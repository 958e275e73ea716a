//go:build unix

package examples

import (
	"os"
	"testing"
)

// The store refuses the paused holder and keeps what the next holder wrote.
func TestFencedStore_HolderPaused(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, "fencedstore", tempEnv(temp), "fencedstore")
	for _, line := range []string{
		`anna +holds the lock, fence 1$`,
		`anna +writes "first by anna" with fence 1; the store accepts it`,
		`anna .* PAUSED`,
		`ben +requests the lock`,
		`waiting for ben`,
		`ben +holds the lock, fence 2$`,
		`ben +writes "second by ben" with fence 2; the store accepts it`,
		`^anna is continued`,
		`anna +writes "second by anna" with fence 1; the store REFUSES it: .*stale fence`,
		`anna +checks the lock again: .*ownership`,
		`anna +gives up the lost hold`,
		`^The store has "second by ben"`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	checkEmpty(t, temp)
}

// Ctrl-C ends the workers as well, the paused one included: the director waits
// for them.
func TestFencedStore_Interrupted(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, "fencedstore", tempEnv(temp), "fencedstore")
	p.expect(`PAUSED`)
	p.signal(os.Interrupt)
	p.expect(`context canceled`)
	if status := p.wait(); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	checkEmpty(t, temp)
}
