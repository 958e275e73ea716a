//go:build unix

package examples

import (
	"os"
	"testing"
)

// The paused holder wakes up and is refused by the store, which keeps what the
// next holder wrote.
func TestFencedStore(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, "fencedstore", []string{"TMPDIR=" + temp}, "fencedstore")
	for _, line := range []string{
		`anna +holds the lock, fence 1$`,
		`anna +writes "first by anna" with fence 1; the store keeps it`,
		`anna .* PAUSED`,
		`ben +asks for the lock`,
		`waiting for ben`,
		`ben +holds the lock, fence 2$`,
		`ben +writes "second by ben" with fence 2; the store keeps it`,
		`^anna is continued`,
		`anna +writes "second by anna" with fence 1; the store REFUSES it: .*stale fence`,
		`anna .* the lock's ownership was lost`,
		`anna +gives up what it held`,
		`^The store has "second by ben"`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	nothingIn(t, temp)
}

// Interrupted in the middle it takes its workers along, the paused one as well:
// the director ends only when it has waited for them.
func TestFencedStoreInterrupted(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, "fencedstore", []string{"TMPDIR=" + temp}, "fencedstore")
	p.expect(`PAUSED`)
	p.signal(os.Interrupt)
	p.expect(`context canceled`)
	if status := p.wait(); status != 1 {
		t.Errorf("exit status %d", status)
	}
	nothingIn(t, temp)
}
